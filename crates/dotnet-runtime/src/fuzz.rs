//! Entry points of the fuzz targets. Built with `--cfg fuzzing` only.

use std::{path::Path, sync::Arc};

use profiler_addresses::RuntimeAddress;
use profiler_binary_reader::Image;
use profiler_dotnet_symbols::readytorun::AssemblyFiles;

use crate::{
    CodeWithFrames, DataDescriptor, DotNetRuntime, FunctionFrames, ManagedThread, ReadLimits,
    test_image::{self, DYNAMIC, GET, Place, RUN, STUB, Version, code_of},
};

struct NoFiles;

impl AssemblyFiles for NoFiles {
    fn open(&self, _: &Path) -> Option<Image> {
        None
    }
}

/// Parses a description.
pub fn parse_descriptor(json: &[u8]) {
    let _ = DataDescriptor::parse(json, &[1, 2, 3]);
}

/// Looks up the methods of a runtime, and lists its threads and monitors, after changes of its memory: the first byte selects the
/// version and the place of the metadata, then each eight bytes are a page, an offset in the page, the number of bytes, and the
/// bytes.
pub fn find_methods(input: &[u8]) {
    let Some((first, changes)) = input.split_first() else { return };
    let version = if first & 1 == 0 { Version::Net9 } else { Version::Net10 };
    let place = [Place::FlatImage, Place::LoadedImage, Place::Buffer][usize::from(first >> 1) % 3];
    let (mut memory, symbols) = test_image::build(version, place);
    for change in changes.as_chunks::<8>().0 {
        let [page, low, high, count, values @ ..] = *change;
        let offset = u64::from(u16::from_le_bytes([low, high]));
        memory.write_on_page(page.into(), offset, &values[..usize::from(count % 5)]);
    }
    let limits = ReadLimits::default();
    let Ok(mut runtime) = DotNetRuntime::open(Arc::new(memory), symbols, limits, &Arc::default()) else {
        return;
    };
    for method in [RUN, GET, DYNAMIC, STUB] {
        let address = RuntimeAddress(code_of(method) + 5);
        let _ = runtime.find(address, &NoFiles);
        let cost_of_name = runtime.last_cost();
        if let Ok(CodeWithFrames { frames: Ok(functions), .. }) = runtime.find_with_frames(address, &NoFiles)
        {
            let code_bytes =
                |function: &FunctionFrames| (function.code.end.0 - function.code.start.0) as usize;
            assert!(functions.iter().all(|function| function.instructions.len() == code_bytes(function)));
        }
        for cost in [cost_of_name, runtime.last_cost()] {
            assert!(cost.reads <= limits.reads + 100 && cost.bytes <= 2 * limits.bytes, "{cost:?}");
        }
    }
    list_threads_and_monitors(&mut runtime, limits);
}

/// Lists the threads and the monitors. Each owner has the ids of a thread.
fn list_threads_and_monitors(runtime: &mut DotNetRuntime, limits: ReadLimits) {
    let threads = runtime.threads();
    let cost_of_threads = runtime.last_cost();
    let monitors = runtime.monitors();
    for cost in [cost_of_threads, runtime.last_cost()] {
        assert!(cost.reads <= 4 * limits.reads + 100 && cost.bytes <= 2 * limits.bytes, "{cost:?}");
    }
    let (Ok(threads), Ok(monitors)) = (threads, monitors) else { return };
    if let Ok(owners) = runtime.owners(&monitors.entries) {
        let is_owner = |owner: &ManagedThread| {
            monitors.entries.iter().any(|monitor| monitor.owner_managed_id == owner.managed_id)
        };
        assert!(owners.entries.iter().all(is_owner), "{owners:?}");
    }
    for monitor in monitors.entries {
        let has_ids = |thread: &ManagedThread| {
            (thread.os_id, thread.managed_id) == (monitor.owner_os_id, monitor.owner_managed_id)
        };
        assert!(!threads.is_complete || threads.entries.iter().any(has_ids), "{monitor:?}");
    }
}
