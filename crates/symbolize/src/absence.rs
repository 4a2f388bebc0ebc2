//! The [`Reason`] of a frame for each way in which reading a file fails.

use profiler_binary_reader::Defect;
use profiler_dotnet_symbols::readytorun::NameError;
use profiler_profile::Reason;

/// The reason of frames whose file has this defect.
pub(crate) fn of_defect(defect: Defect) -> Reason {
    match defect {
        Defect::NotElf => Reason::NotElf,
        Defect::Malformed => Reason::MalformedFile,
        Defect::TooLarge => Reason::TooLarge,
    }
}

/// The reason of frames of precompiled .NET code that has no name.
pub(crate) fn of_name_error(error: NameError) -> Reason {
    match error {
        NameError::NotPrecompiled => Reason::NoSymbols,
        NameError::AssemblyMissing => Reason::FileMissing,
        NameError::AssemblyReplaced => Reason::FileReplaced,
        NameError::Defect(defect) => of_defect(defect),
        _ => Reason::NoSymbolHere,
    }
}
