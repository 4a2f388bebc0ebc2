//! Why the data structures of a runtime cannot be used, and why an address has no method.

use profiler_binary_reader::ParseError;
use profiler_dotnet_symbols::readytorun::NameError;
use thiserror::Error;

use crate::memory::ReadError;

/// Why the data structures of a runtime cannot be used.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DescriptorError {
    /// The memory of the process cannot be read.
    #[error("the description of the runtime's data structures cannot be read: {0}")]
    Read(#[from] ReadError),
    /// No descriptor is at the address.
    #[error("no data contract descriptor is at the address")]
    NoDescriptor,
    /// The runtime has another word size.
    #[error("the data contract descriptor is of a 32-bit runtime")]
    WordSize,
    /// The runtime is of another architecture.
    #[error("the data contract descriptor is of a runtime for {0}, not for x64")]
    Architecture(String),
    /// The description exceeds a limit.
    #[error("the data contract descriptor has {0}")]
    TooLarge(&'static str),
    /// The description is no JSON, or JSON of another form.
    #[error("the data contract descriptor is malformed: {0}")]
    Malformed(String),
    /// The description adds to another one, which is not in the process.
    #[error("the data contract descriptor adds to the description \"{0}\", which this version does not have")]
    Baseline(String),
    /// The runtime does not have what is needed.
    #[error("the runtime does not describe the contract {0}: .NET 9.0 and 10.0 are supported")]
    ContractMissing(&'static str),
    /// A contract has a version with other algorithms.
    #[error("version {version} of the runtime's contract {contract} is not supported")]
    ContractVersion {
        /// The contract.
        contract: &'static str,
        /// Its version in the process.
        version: String,
    },
    /// A field, the size of a type or a global variable is not described.
    #[error("the runtime does not describe {0}")]
    Missing(String),
    /// The map of code ranges of .NET 9 is not exported.
    #[error("the runtime does not export the map of its code (g_dacTable)")]
    CodeMapMissing,
}

/// Why an address has no method.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// The runtime has no code at the address.
    #[error("the runtime has no code at the address")]
    NoCode,
    /// The address is in a code heap, but not in the code of a method.
    #[error("no method has code at the address")]
    NoMethod,
    /// The address is in a stub whose code no template describes.
    #[error("the address is in a stub of an unknown kind")]
    UnknownStub,
    /// The code was freed or replaced while it was read.
    #[error("the code at the address changed while it was read")]
    CodeChanged,
    /// The runtime frees the code when nothing refers to it, and uses its memory for other code.
    #[error("the runtime can free the code at the address")]
    CanBeFreed,
    /// The memory of the process cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A data structure contradicts itself.
    #[error("the runtime has a malformed {0}")]
    Malformed(&'static str),
    /// A data structure exceeds a limit.
    #[error("the runtime has too large a {0}")]
    TooLarge(&'static str),
    /// A kind of method or type without a name.
    #[error("methods of a {0} have no name")]
    Unsupported(&'static str),
    /// The metadata of a module cannot be read.
    #[error("the metadata of the module cannot be read: {0}")]
    Metadata(ParseError),
    /// The precompiled code has no name.
    #[error("the precompiled method has no name: {0}")]
    Precompiled(NameError),
}

/// Why the threads or the monitors of a runtime cannot be read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The runtime does not describe them, or in another version.
    #[error("{0}")]
    NotDescribed(#[from] DescriptorError),
    /// The memory of the process cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// Threads started or ended in each reading of the list.
    #[error("the list of threads changed each time that it was read")]
    ThreadsChanged,
}

impl From<ParseError> for LookupError {
    fn from(error: ParseError) -> Self {
        Self::Metadata(error)
    }
}
