//! Records what lookups read of a runtime that is built for tests: the seeds of the fuzz target `runtime_memory`.
//!
//! `BLESS=1 cargo nextest run -p profiler-dotnet-runtime recorded_reads` writes the seeds. Their format is that of the recordings in captures
//! (`crates/symbolize/src/method_memory/runtime_reader/recording.rs`).

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use profiler_addresses::RuntimeAddress;

use super::{NoFiles, open};
use crate::{
    Memory, ReadError,
    test_image::{self, DYNAMIC, GET, Place, RUN, STUB, Version, code_of},
    test_memory::TestMemory,
    test_threads::LAST_EXCEPTION,
};

/// The longest input of a short run of the fuzzer.
const MAX_SEED_BYTES: usize = 16 << 10;

/// Memory that keeps each byte that was read.
#[derive(Debug)]
struct RecordedMemory {
    memory: TestMemory,
    read: Arc<Mutex<BTreeMap<u64, u8>>>,
}

impl Memory for RecordedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(address, into)?;
        self.read.lock().unwrap().extend((address..).zip(into.iter().copied()));
        Ok(())
    }
}

/// A recording of one reading of these methods, with the memory of their frames, and of threads and locks if `has_locks`. The list of
/// the code that can be freed is too long for a seed.
fn recording(version: Version, methods: &[u64], has_locks: bool) -> Vec<u8> {
    let (mut memory, symbols) = test_image::build(version, Place::LoadedImage);
    if has_locks && version == Version::Net10 {
        // No exception: the metadata of its type would make the seed too long.
        memory.write_u64(LAST_EXCEPTION, 0);
    }
    let read = Arc::default();
    let mut runtime = open(RecordedMemory { memory, read: Arc::clone(&read) }, symbols);
    let mut addresses: Vec<_> = methods.iter().map(|method| code_of(*method) + 5).collect();
    for address in &addresses {
        let address = RuntimeAddress(*address);
        // A stub of an unknown kind has no name, and what can be freed has no frames.
        let _ = runtime.find_with_frames(address, &NoFiles);
    }
    // A recording can come from a stranger.
    addresses.push(u64::MAX);
    if has_locks {
        let monitors = runtime.monitors().unwrap();
        assert_eq!(runtime.owners(&monitors.entries).unwrap().entries.len(), 2);
    }
    let dac_table = symbols.dac_table.map_or(0, |address| address.0);
    let mut recording = b"DNMEMRD1".to_vec();
    recording.extend([symbols.descriptor.0, dac_table].map(u64::to_le_bytes).as_flattened());
    let read: Vec<_> = read.lock().unwrap().iter().map(|(address, byte)| (*address, *byte)).collect();
    for range in read.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
        recording.push(1);
        recording.extend(range[0].0.to_le_bytes());
        recording.extend((range.len() as u32).to_le_bytes());
        recording.extend(range.iter().map(|(_, byte)| byte));
    }
    recording.push(3);
    recording.extend([100_u64, 200].map(u64::to_le_bytes).as_flattened());
    recording.push(0);
    recording.extend((addresses.len() as u32).to_le_bytes());
    recording.extend(addresses.iter().flat_map(|address| address.to_le_bytes()));
    recording
}

#[test]
fn the_seeds_of_the_fuzz_target_are_what_lookups_read() {
    let seeds = [
        ("methods9", recording(Version::Net9, &[RUN, GET], false)),
        ("methods10", recording(Version::Net10, &[RUN, GET, DYNAMIC, STUB], false)),
        ("locks9", recording(Version::Net9, &[], true)),
        ("locks10", recording(Version::Net10, &[], true)),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds/runtime_memory");
    for (name, seed) in seeds {
        assert!(seed.len() < MAX_SEED_BYTES, "{name}: {} bytes", seed.len());
        let path = folder.join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &seed).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == seed, "{name} has changed: run the test with BLESS=1");
    }
}
