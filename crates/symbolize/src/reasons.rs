//! Maps errors of the lower crates to the [`Reason`] of an unsymbolized frame.

use profiler_binary_reader::ParseError;
use profiler_dotnet_symbols::readytorun::NameError;
use profiler_processes::{LookupError, OpenError};
use profiler_profile::Reason;

/// The reason of frames in a file that cannot be parsed.
pub(crate) fn parse_error_reason(error: ParseError) -> Reason {
    match error {
        ParseError::NotElf => Reason::NotElf,
        ParseError::Malformed => Reason::MalformedFile,
        ParseError::TooLarge => Reason::TooLarge,
        ParseError::TimedOut => Reason::NotResponding,
    }
}

/// The reason of frames of precompiled .NET code without a symbol.
pub(crate) fn name_error_reason(error: NameError) -> Reason {
    match error {
        NameError::NotPrecompiled => Reason::NoSymbols,
        NameError::AssemblyMissing => Reason::FileMissing,
        NameError::AssemblyReplaced => Reason::FileReplaced,
        NameError::ParseError(error) => parse_error_reason(error),
        _ => Reason::NoSymbolHere,
    }
}

/// The reason of frames at an address without a mapping.
pub fn lookup_error_reason(error: LookupError) -> Reason {
    match error {
        LookupError::ProcessGone => Reason::ProcessGone,
        LookupError::NotReadable => Reason::ProcessNotReadable,
        LookupError::TimedOut => Reason::NotResponding,
        LookupError::TooManyOpenFiles => Reason::TooManyOpenFiles,
        _ => Reason::NoMapping,
    }
}

/// The reason of frames in a file that cannot be opened.
pub(crate) fn open_error_reason(error: OpenError) -> Reason {
    match error {
        OpenError::Replaced => Reason::FileReplaced,
        OpenError::NotAFile => Reason::NotAFile,
        OpenError::NotReadable => Reason::FileNotReadable,
        OpenError::TimedOut => Reason::NotResponding,
        OpenError::TooManyOpenFiles => Reason::TooManyOpenFiles,
        _ => Reason::FileMissing,
    }
}

/// Whether code of a file that cannot be used for this reason can be JIT code: compilers map memory files, files in shared memory,
/// unlinked files, and memory that was saved behind the segments of a program.
pub(crate) fn may_be_jit(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotElf
            | Reason::NoJitMap
            | Reason::MalformedFile
            | Reason::FileMissing
            | Reason::FileNotReadable
            | Reason::FileReplaced
            | Reason::NotAFile
    )
}
