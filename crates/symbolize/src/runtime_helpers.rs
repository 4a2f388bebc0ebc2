//! Reads the names and functions of the helpers that JIT code calls, from the files of a JIT compiler and a .NET runtime.

use std::sync::Arc;

use profiler_binary_reader::{ParseError, WorkBudget};
use profiler_dotnet_symbols::{
    call_tables::RuntimeFile,
    jit_helpers::{JitHelpers, find_jit_helpers, read_helper_names},
};
use profiler_elf_symbols::{Elf, FunctionRanges};

/// The work of reading the tables of one file. Those of real files take a tenth.
const WORK_LIMIT: u64 = 16 << 20;

/// The names of helpers, by number, in a file; empty for a file that has none.
pub(super) fn helper_names(module: &Elf) -> Vec<String> {
    let names = || {
        let budget = Arc::new(WorkBudget::with_work_limit(WORK_LIMIT));
        let relocations = module.relative_relocations(&budget)?;
        read_helper_names(module.loaded_image(budget)?, &relocations)
    };
    or_log(names())
}

/// The helpers of a runtime with these names; `ranges` has the functions of its file.
pub(super) fn jit_helpers(module: &Elf, ranges: &FunctionRanges, names: &[String]) -> JitHelpers {
    let helpers = || {
        let budget = Arc::new(WorkBudget::with_work_limit(WORK_LIMIT));
        let relocations = module.relative_relocations(&budget)?;
        let is_function_start = |address| ranges.is_start(address);
        let image = module.loaded_image(budget)?;
        let file = RuntimeFile { image, relocations: &relocations, is_function_start: &is_function_start };
        find_jit_helpers(file, names)
    };
    if names.is_empty() { JitHelpers::default() } else { or_log(helpers()) }
}

fn or_log<T: Default>(result: Result<T, ParseError>) -> T {
    result.unwrap_or_else(|error| {
        log::debug!("failed to read the helpers of a .NET runtime: {error}");
        T::default()
    })
}
