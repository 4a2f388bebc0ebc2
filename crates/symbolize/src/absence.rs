//! The [`Reason`] of a frame for each way in which reading a file fails.

use profiler_binary_reader::ParseError;
use profiler_dotnet_symbols::readytorun::NameError;
use profiler_profile::Reason;

/// The reason of frames whose file has this defect.
pub(crate) fn of_defect(defect: ParseError) -> Reason {
    match defect {
        ParseError::NotElf => Reason::NotElf,
        ParseError::Malformed => Reason::MalformedFile,
        ParseError::TooLarge => Reason::TooLarge,
    }
}

/// The reason of frames of precompiled .NET code that has no name.
pub(crate) fn of_name_error(error: NameError) -> Reason {
    match error {
        NameError::NotPrecompiled => Reason::NoSymbols,
        NameError::AssemblyMissing => Reason::FileMissing,
        NameError::AssemblyReplaced => Reason::FileReplaced,
        NameError::ParseError(defect) => of_defect(defect),
        _ => Reason::NoSymbolHere,
    }
}
