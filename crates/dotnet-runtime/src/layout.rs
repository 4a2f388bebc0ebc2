//! The offsets of all fields that lookups read, taken once from the descriptor of a runtime.
//!
//! Source of the types and of the algorithms over them: dotnet/runtime, `docs/design/datacontracts` (`ExecutionManager.md`,
//! `RuntimeTypeSystem.md`, `Loader.md`, `EcmaMetadata.md`).

use crate::{
    descriptor::{ContractVersion, DataDescriptor},
    error::DescriptorError,
    thread_layout::{MonitorLayout, OwnerField, ThreadLayout},
};

/// How the starts of methods in a code heap are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NibbleMapKind {
    /// A search goes back unit by unit (`NibbleMapLinearLookup`, ExecutionManager version 1, and .NET 9).
    Linear,
    /// Units within a long method point to its start (`NibbleMapConstantLookup`, ExecutionManager version 2).
    Constant,
}

/// All offsets.
#[derive(Clone, Debug)]
pub(crate) struct Layouts {
    pub(crate) code: CodeLayout,
    pub(crate) method: MethodLayout,
    pub(crate) types: TypeLayouts,
    pub(crate) module: ModuleLayout,
    /// Methods have names without them.
    pub(crate) threads: Result<ThreadLayout, DescriptorError>,
    pub(crate) monitors: Result<MonitorLayout, DescriptorError>,
}

/// `RangeSectionMap`, `RangeSectionFragment`, `RangeSection`, `CodeHeapListNode`, `RealCodeHeader`.
#[derive(Clone, Debug)]
pub(crate) struct CodeLayout {
    /// The address of the first level of the map.
    pub(crate) map: u64,
    pub(crate) fragment_begin: u64,
    pub(crate) fragment_end: u64,
    pub(crate) fragment_section: u64,
    pub(crate) fragment_next: u64,
    pub(crate) section_begin: u64,
    pub(crate) section_end: u64,
    pub(crate) section_flags: u64,
    pub(crate) section_heap: u64,
    pub(crate) section_precompiled_module: u64,
    pub(crate) heap_map_base: u64,
    pub(crate) heap_header_map: u64,
    pub(crate) nibble_map: NibbleMapKind,
    /// A code header up to this value is the kind of a stub.
    pub(crate) last_stub_kind: u64,
    pub(crate) header_method: u64,
    pub(crate) header_unwind_count: u64,
    pub(crate) header_unwind_infos: u64,
    pub(crate) runtime_function_bytes: u64,
}

/// `MethodDesc`, `MethodDescChunk`, `StoredSigMethodDesc`, `DynamicMethodDesc`.
#[derive(Clone, Debug)]
pub(crate) struct MethodLayout {
    pub(crate) flags: u64,
    pub(crate) chunk_index: u64,
    pub(crate) token_remainder: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) chunk_method_table: u64,
    pub(crate) chunk_token_range: u64,
    /// The unit of a chunk index, bytes.
    pub(crate) alignment: u64,
    /// The number of bits of a token that the method itself has.
    pub(crate) token_remainder_bits: u32,
    pub(crate) signature: u64,
    pub(crate) signature_bytes: u64,
    pub(crate) dynamic_flags: u64,
    pub(crate) dynamic_name: u64,
}

/// `MethodTable`, `EEClass`, `ArrayClass`, `GenericsDictInfo` and `TypeDesc` with its kinds.
#[derive(Clone, Debug)]
pub(crate) struct TypeLayouts {
    pub(crate) flags: u64,
    pub(crate) flags2: u64,
    pub(crate) class: u64,
    pub(crate) module: u64,
    pub(crate) per_instance: u64,
    pub(crate) array_rank: u64,
    pub(crate) dictionary_count: u64,
    pub(crate) type_arguments: u64,
    pub(crate) desc_kind: u64,
    pub(crate) desc_element: u64,
    pub(crate) function_arguments: u64,
    pub(crate) function_types: u64,
}

/// `Module`, `DynamicMetadata`, and the way from a module to its image.
#[derive(Clone, Debug)]
pub(crate) struct ModuleLayout {
    pub(crate) base: u64,
    pub(crate) path: u64,
    pub(crate) dynamic_metadata: u64,
    pub(crate) dynamic_size: u64,
    pub(crate) dynamic_data: u64,
    /// `Module.PEAssembly`, `PEAssembly.PEImage`, `PEImage.LoadedImageLayout`, `PEImageLayout.Base`; .NET 10.
    pub(crate) image_layout: Option<[u64; 4]>,
}

impl Layouts {
    /// Takes the offsets from a descriptor. `code_map` finds the map of code ranges, which .NET 9 does not describe.
    ///
    /// # Errors
    /// [`DescriptorError`] when a contract has a version with other algorithms, or something is not described.
    pub(crate) fn new(
        mut descriptor: DataDescriptor,
        code_map: impl FnOnce() -> Result<u64, DescriptorError>,
    ) -> Result<Self, DescriptorError> {
        check_architecture(&descriptor)?;
        for contract in ["RuntimeTypeSystem", "Loader", "EcmaMetadata"] {
            check_version(&descriptor, contract, 1)?;
        }
        let owner = if is_net9(&descriptor) { OwnerField::Address } else { OwnerField::ManagedId };
        let nibble_map = match descriptor.contract("ExecutionManager") {
            None if is_net9(&descriptor) => {
                add_net9(&mut descriptor, code_map()?);
                NibbleMapKind::Linear
            }
            None => return Err(DescriptorError::ContractMissing("ExecutionManager")),
            Some(ContractVersion::Number(1)) => NibbleMapKind::Linear,
            _ => {
                check_version(&descriptor, "ExecutionManager", 2)?;
                NibbleMapKind::Constant
            }
        };
        Ok(Self {
            code: CodeLayout::new(&descriptor, nibble_map)?,
            method: MethodLayout::new(&descriptor)?,
            types: TypeLayouts::new(&descriptor)?,
            module: ModuleLayout::new(&descriptor)?,
            threads: ThreadLayout::new(&descriptor),
            monitors: MonitorLayout::new(&descriptor, owner),
        })
    }
}

fn check_version(
    descriptor: &DataDescriptor,
    contract: &'static str,
    supported: u64,
) -> Result<(), DescriptorError> {
    match descriptor.contract(contract) {
        None => Err(DescriptorError::ContractMissing(contract)),
        Some(version) if *version == ContractVersion::Number(supported) => Ok(()),
        Some(version) => Err(DescriptorError::ContractVersion { contract, version: version.to_string() }),
    }
}

/// Checks that functions have the `RUNTIME_FUNCTION` of x86-64. .NET 9 does not state its architecture.
fn check_architecture(descriptor: &DataDescriptor) -> Result<(), DescriptorError> {
    match descriptor.text("Architecture") {
        None | Some("x64") => Ok(()),
        Some(other) => Err(DescriptorError::Architecture(other.to_owned())),
    }
}

/// Whether a descriptor without the contract of code is that of .NET 9: exactly its seven contracts, in version 1.
fn is_net9(descriptor: &DataDescriptor) -> bool {
    const CONTRACTS: [&str; 7] =
        ["DacStreams", "EcmaMetadata", "Exception", "Loader", "Object", "RuntimeTypeSystem", "Thread"];
    let is_first = |name: &&str| descriptor.contract(name) == Some(&ContractVersion::Number(1));
    descriptor.contracts() == CONTRACTS.len() && CONTRACTS.iter().all(is_first)
}

/// Adds what the descriptor of .NET 9 lacks: the structures of code, which .NET 10 describes with the same layout.
fn add_net9(descriptor: &mut DataDescriptor, code_map: u64) {
    descriptor.add_global("ExecutionManagerCodeRangeMapAddress", code_map);
    descriptor.add_global("StubCodeBlockLast", 15);
    descriptor.add_type("RangeSectionMap", None, &[("TopLevelData", 0)]);
    descriptor.add_type(
        "RangeSectionFragment",
        None,
        &[("Next", 0), ("RangeBegin", 8), ("RangeEndOpen", 16), ("RangeSection", 24)],
    );
    descriptor.add_type(
        "RangeSection",
        None,
        &[("RangeBegin", 0), ("RangeEndOpen", 8), ("Flags", 16), ("R2RModule", 32), ("HeapList", 40)],
    );
    descriptor.add_type("CodeHeapListNode", None, &[("MapBase", 32), ("HeaderMap", 40)]);
    descriptor.add_type(
        "RealCodeHeader",
        None,
        &[("MethodDesc", 24), ("NumUnwindInfos", 32), ("UnwindInfos", 36)],
    );
    descriptor.add_type("RuntimeFunction", Some(12), &[]);
    descriptor.add_type("GenericsDictInfo", None, &[("NumDicts", 4)]);
}

impl CodeLayout {
    fn new(descriptor: &DataDescriptor, nibble_map: NibbleMapKind) -> Result<Self, DescriptorError> {
        let map = descriptor.global("ExecutionManagerCodeRangeMapAddress")?;
        Ok(Self {
            map: map.wrapping_add(descriptor.offset("RangeSectionMap", "TopLevelData")?),
            fragment_begin: descriptor.offset("RangeSectionFragment", "RangeBegin")?,
            fragment_end: descriptor.offset("RangeSectionFragment", "RangeEndOpen")?,
            fragment_section: descriptor.offset("RangeSectionFragment", "RangeSection")?,
            fragment_next: descriptor.offset("RangeSectionFragment", "Next")?,
            section_begin: descriptor.offset("RangeSection", "RangeBegin")?,
            section_end: descriptor.offset("RangeSection", "RangeEndOpen")?,
            section_flags: descriptor.offset("RangeSection", "Flags")?,
            section_heap: descriptor.offset("RangeSection", "HeapList")?,
            section_precompiled_module: descriptor.offset("RangeSection", "R2RModule")?,
            heap_map_base: descriptor.offset("CodeHeapListNode", "MapBase")?,
            heap_header_map: descriptor.offset("CodeHeapListNode", "HeaderMap")?,
            nibble_map,
            last_stub_kind: descriptor.global("StubCodeBlockLast")?,
            header_method: descriptor.offset("RealCodeHeader", "MethodDesc")?,
            header_unwind_count: descriptor.offset("RealCodeHeader", "NumUnwindInfos")?,
            header_unwind_infos: descriptor.offset("RealCodeHeader", "UnwindInfos")?,
            runtime_function_bytes: descriptor.size_of("RuntimeFunction")?,
        })
    }
}

impl MethodLayout {
    fn new(descriptor: &DataDescriptor) -> Result<Self, DescriptorError> {
        /// A token has 24 bits of row number.
        const MAX_REMAINDER_BITS: u64 = 16;
        let bits = descriptor.global("MethodDescTokenRemainderBitCount")?;
        let bits = u32::try_from(bits).ok().filter(|bits| u64::from(*bits) <= MAX_REMAINDER_BITS);
        let bits = bits.ok_or_else(|| DescriptorError::Malformed("size of a token".to_owned()))?;
        Ok(Self {
            flags: descriptor.offset("MethodDesc", "Flags")?,
            chunk_index: descriptor.offset("MethodDesc", "ChunkIndex")?,
            token_remainder: descriptor.offset("MethodDesc", "Flags3AndTokenRemainder")?,
            chunk_bytes: descriptor.size_of("MethodDescChunk")?,
            chunk_method_table: descriptor.offset("MethodDescChunk", "MethodTable")?,
            chunk_token_range: descriptor.offset("MethodDescChunk", "FlagsAndTokenRange")?,
            alignment: descriptor.global("MethodDescAlignment")?,
            token_remainder_bits: bits,
            signature: descriptor.offset("StoredSigMethodDesc", "Sig")?,
            signature_bytes: descriptor.offset("StoredSigMethodDesc", "cSig")?,
            dynamic_flags: descriptor.offset("StoredSigMethodDesc", "ExtendedFlags")?,
            dynamic_name: descriptor.offset("DynamicMethodDesc", "MethodName")?,
        })
    }
}

impl TypeLayouts {
    fn new(descriptor: &DataDescriptor) -> Result<Self, DescriptorError> {
        Ok(Self {
            flags: descriptor.offset("MethodTable", "MTFlags")?,
            flags2: descriptor.offset("MethodTable", "MTFlags2")?,
            class: descriptor.offset("MethodTable", "EEClassOrCanonMT")?,
            module: descriptor.offset("MethodTable", "Module")?,
            per_instance: descriptor.offset("MethodTable", "PerInstInfo")?,
            array_rank: descriptor.offset("ArrayClass", "Rank")?,
            dictionary_count: descriptor.offset("GenericsDictInfo", "NumDicts")?,
            type_arguments: descriptor.offset("GenericsDictInfo", "NumTypeArgs")?,
            desc_kind: descriptor.offset("TypeDesc", "TypeAndFlags")?,
            desc_element: descriptor.offset("ParamTypeDesc", "TypeArg")?,
            function_arguments: descriptor.offset("FnPtrTypeDesc", "NumArgs")?,
            function_types: descriptor.offset("FnPtrTypeDesc", "RetAndArgTypes")?,
        })
    }
}

impl ModuleLayout {
    fn new(descriptor: &DataDescriptor) -> Result<Self, DescriptorError> {
        let way = [
            ("Module", "PEAssembly"),
            ("PEAssembly", "PEImage"),
            ("PEImage", "LoadedImageLayout"),
            ("PEImageLayout", "Base"),
        ];
        let offsets: Result<Vec<_>, _> =
            way.into_iter().map(|(of, field)| descriptor.offset(of, field)).collect();
        Ok(Self {
            base: descriptor.offset("Module", "Base")?,
            path: descriptor.offset("Module", "Path")?,
            dynamic_metadata: descriptor.offset("Module", "DynamicMetadata")?,
            dynamic_size: descriptor.offset("DynamicMetadata", "Size")?,
            dynamic_data: descriptor.offset("DynamicMetadata", "Data")?,
            image_layout: offsets.ok().and_then(|offsets| offsets.try_into().ok()),
        })
    }
}
