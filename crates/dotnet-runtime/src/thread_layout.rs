//! The offsets of threads and of monitors, taken once from the descriptor of a runtime.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/Thread.md` and `Object.md`; for what no contract describes, `vm/syncblk.h`
//! (`AwareLock`) and `System.Private.CoreLib/src/System/Threading/Thread.CoreCLR.cs`.

use crate::{
    descriptor::{ContractVersion, DataDescriptor},
    error::DescriptorError,
};

/// The largest `Thread` that is read. That of .NET 10 has its last field at 568.
const MAX_THREAD_BYTES: u64 = 4 << 10;

/// `ThreadStore`, `Thread` and what names need: `Object`, `String`.
#[derive(Clone, Debug)]
pub(crate) struct ThreadLayout {
    /// The address of the pointer to the list of threads.
    pub(crate) store: u64,
    pub(crate) first_link: u64,
    /// The bytes of a thread that have the fields below.
    pub(crate) thread_bytes: usize,
    pub(crate) id: u64,
    pub(crate) os_id: u64,
    pub(crate) is_cooperative: u64,
    /// The handle of the `System.Threading.Thread`.
    pub(crate) exposed_object: u64,
    pub(crate) last_exception: u64,
    pub(crate) link: u64,
    pub(crate) method_table: u64,
    /// The bits of the pointer to a method table that the garbage collector uses.
    pub(crate) method_table_marks: u64,
    /// The address of the pointer to the method table of strings.
    pub(crate) string_method_table: u64,
    pub(crate) string_length: u64,
    pub(crate) string_characters: u64,
}

/// `SyncTableEntry` and the header of an object.
#[derive(Clone, Debug)]
pub(crate) struct MonitorLayout {
    /// The address of the pointer to the table.
    pub(crate) table: u64,
    pub(crate) header_before_object: u64,
    pub(crate) owner: OwnerField,
}

/// What the second word of a monitor identifies its owner by, beside the id of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerField {
    /// The address of the thread: .NET 9.
    Address,
    /// The managed id of the thread: .NET 10.
    ManagedId,
}

impl ThreadLayout {
    pub(crate) fn new(descriptor: &DataDescriptor) -> Result<Self, DescriptorError> {
        check_first_version(descriptor, "Thread")?;
        check_first_version(descriptor, "Object")?;
        let field = |name| descriptor.offset("Thread", name);
        let [id, os_id, is_cooperative] = [field("Id")?, field("OSId")?, field("PreemptiveGCDisabled")?];
        let [exposed_object, last_exception, link] =
            [field("GCHandle")?, field("LastThrownObject")?, field("LinkNext")?];
        let last = [id, os_id, is_cooperative, exposed_object, last_exception, link].into_iter().max();
        let bytes = last.unwrap_or_default().saturating_add(size_of::<u64>() as u64);
        if bytes > MAX_THREAD_BYTES {
            return Err(DescriptorError::TooLarge("a thread of more than 4 KiB"));
        }
        Ok(Self {
            store: descriptor.global("ThreadStore")?,
            first_link: descriptor.offset("ThreadStore", "FirstThreadLink")?,
            thread_bytes: bytes as usize,
            id,
            os_id,
            is_cooperative,
            exposed_object,
            last_exception,
            link,
            method_table: descriptor.offset("Object", "m_pMethTab")?,
            method_table_marks: descriptor.global("ObjectToMethodTableUnmask")?,
            string_method_table: descriptor.global("StringMethodTable")?,
            string_length: descriptor.offset("String", "m_StringLength")?,
            string_characters: descriptor.offset("String", "m_FirstChar")?,
        })
    }
}

impl MonitorLayout {
    pub(crate) fn new(descriptor: &DataDescriptor, owner: OwnerField) -> Result<Self, DescriptorError> {
        // What follows the monitor in a `SyncBlock`, and the size of an entry: .NET 9 and 10 describe nothing more.
        const MONITOR_BYTES: u64 = 56;
        const ENTRY_BYTES: u64 = 16;
        let is_known = descriptor.contract("SyncBlock").is_none()
            && descriptor.offset("SyncBlock", "InteropInfo")? == MONITOR_BYTES
            && descriptor.offset("SyncTableEntry", "SyncBlock")? == 0
            && descriptor.size_of("SyncTableEntry")? == ENTRY_BYTES;
        if !is_known {
            return Err(DescriptorError::Missing("monitors as .NET 9.0 and 10.0 do".to_owned()));
        }
        Ok(Self {
            table: descriptor.global("SyncTableEntries")?,
            header_before_object: descriptor.global("SyncBlockValueToObjectOffset")?,
            owner,
        })
    }
}

fn check_first_version(descriptor: &DataDescriptor, contract: &'static str) -> Result<(), DescriptorError> {
    match descriptor.contract(contract) {
        None => Err(DescriptorError::ContractMissing(contract)),
        Some(ContractVersion::Number(1)) => Ok(()),
        Some(version) => Err(DescriptorError::ContractVersion { contract, version: version.to_string() }),
    }
}
