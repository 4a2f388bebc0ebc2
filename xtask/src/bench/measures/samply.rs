//! Reads samply's recordings: a Firefox Profiler profile, and the symbols in a file beside it.

use std::path::Path;

use anyhow::{Context as _, Result};
use fs_err as fs;
use serde::Deserialize;

use super::stacks::Stack;

/// The file `NAME.json`. Tables are stored by column.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    libs: Vec<Library>,
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Library {
    debug_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    samples: Samples,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FunctionTable,
    resource_table: ResourceTable,
}

#[derive(Deserialize)]
struct Samples {
    stack: Vec<Option<usize>>,
    weight: Vec<u64>,
}

#[derive(Deserialize)]
struct StackTable {
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Deserialize)]
struct FrameTable {
    address: Vec<i64>,
    func: Vec<usize>,
}

#[derive(Deserialize)]
struct FunctionTable {
    /// The index of the library, -1 for none.
    resource: Vec<i64>,
}

#[derive(Deserialize)]
struct ResourceTable {
    lib: Vec<Option<usize>>,
}

/// The file `NAME.syms.json`.
#[derive(Deserialize)]
struct Names {
    string_table: Vec<String>,
    data: Vec<LibraryNames>,
}

#[derive(Deserialize)]
struct LibraryNames {
    debug_name: String,
    symbol_table: Vec<Symbol>,
}

#[derive(Deserialize)]
struct Symbol {
    rva: i64,
    size: Option<i64>,
    symbol: usize,
}

/// The stacks of the recording `samply.json` in a folder.
pub(crate) fn stacks(folder: &Path) -> Result<Vec<Stack>> {
    let profile: Profile = serde_json::from_slice(&fs::read(folder.join("samply.json"))?)?;
    let names: Names = serde_json::from_slice(&fs::read(folder.join("samply.syms.json"))?)?;
    of_profile(&profile, &names).context("samply's profile contradicts itself")
}

fn of_profile(profile: &Profile, names: &Names) -> Option<Vec<Stack>> {
    let mut stacks = Vec::new();
    for thread in &profile.threads {
        for (stack, weight) in thread.samples.stack.iter().zip(&thread.samples.weight) {
            let mut frames = Vec::new();
            let mut place = *stack;
            while let Some(at) = place {
                frames.push(name(profile, names, thread, *thread.stack_table.frame.get(at)?)?);
                place = *thread.stack_table.prefix.get(at)?;
            }
            stacks.push((frames, *weight));
        }
    }
    Some(stacks)
}

/// The symbol of a frame; empty if it is unsymbolized.
fn name(profile: &Profile, names: &Names, thread: &Thread, frame: usize) -> Option<String> {
    let address = *thread.frame_table.address.get(frame)?;
    let function = *thread.frame_table.func.get(frame)?;
    let resource = usize::try_from(*thread.func_table.resource.get(function)?).ok();
    let library = resource.and_then(|resource| *thread.resource_table.lib.get(resource)?);
    let file = library.and_then(|library| profile.libs.get(library));
    let named = file.and_then(|file| names.data.iter().find(|named| named.debug_name == file.debug_name));
    let holds = |symbol: &&Symbol| {
        address >= symbol.rva && symbol.size.is_none_or(|size| address < symbol.rva.saturating_add(size))
    };
    let symbol = named.and_then(|named| named.symbol_table.iter().rev().find(holds));
    Some(symbol.and_then(|symbol| names.string_table.get(symbol.symbol)).cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = r#"{"libs": [{"debugName": "chain"}], "threads": [{
        "samples": {"stack": [1, null], "weight": [3, 1]},
        "stackTable": {"prefix": [null, 0], "frame": [0, 1]},
        "frameTable": {"address": [4895, 4649], "func": [0, 1]},
        "funcTable": {"resource": [0, -1]}, "resourceTable": {"lib": [0]}}]}"#;

    const NAMES: &str = r#"{"string_table": ["UNKNOWN", "main"], "data": [{"debug_name": "chain",
        "symbol_table": [{"rva": 4800, "size": 100, "symbol": 1}]}]}"#;

    #[test]
    fn stacks_are_leaf_first_with_the_available_symbols() {
        let (profile, names) = (serde_json::from_str(PROFILE).unwrap(), serde_json::from_str(NAMES).unwrap());
        let stacks = of_profile(&profile, &names).unwrap();
        assert_eq!(stacks, [(vec![String::new(), "main".to_owned()], 3), (vec![], 1)]);
    }

    #[test]
    fn a_profile_with_invalid_indexes_is_rejected() {
        let profile = PROFILE.replace("[null, 0]", "[null]");
        let (profile, names) =
            (serde_json::from_str(&profile).unwrap(), serde_json::from_str(NAMES).unwrap());
        assert_eq!(of_profile(&profile, &names), None);
    }
}
