//! Tests a program that passes for a .NET runtime and has false addresses of helpers and false stubs in its memory: the
//! names of other processes stay right, and reading the memory is bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use profiler::{
    Profile, Profiler, Target,
    profile::{Frame, SymbolSource, Symbolization},
};
use profiler_tests::{Workload, measure_alone, run_beside_others, sample, wait_for_samples};

const IMAGE: &str = "System.Private.CoreLib.dll";
const SAMPLES: u64 = 2_000;

/// An image with a method and no import section.
const SMALL: &[u8] = include_bytes!("../../../crates/dotnet-symbols/testdata/small.dll");

/// The section of the image: its address, and its place in the file.
const SECTION_ADDRESS: u32 = 0x1000;
const SECTION_OFFSET: u32 = 0x200;

/// The offsets of the sizes of the section, and of an entry in the list of parts that the test replaces.
const SECTION_BYTES_AT: [usize; 2] = [0x150, 0x158];
const LIST_ENTRY_AT: usize = 0x278;

const IMPORT_SECTIONS: u32 = 101;
const HELPER_SIGNATURE: u8 = 0x1a;
const ALLOCATION_SIGNATURE: u8 = 0x1c;

/// Import sections, and cells of each: more than any compiler emits.
const SECTIONS: u32 = 64;
const CELLS: u32 = 32 << 10;

/// Where the cells are, in the memory that the program fills, and the helpers with the lowest number.
const CELLS_ADDRESS: u32 = 0x20_0000;
const HELPERS: u32 = 80;
const FIRST_HELPER: u8 = 0x20;

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// An image with 80 cells of helpers and two million cells of allocations.
fn image_with_huge_counts() -> Vec<u8> {
    const EAGER: u32 = 1;
    const CELL_BYTES: u32 = 8;
    let address = |offset: usize| offset as u32 - SECTION_OFFSET + SECTION_ADDRESS;
    let mut image = SMALL.to_vec();
    let texts = address(image.len());
    image.extend((0..HELPERS as u8).flat_map(|number| [HELPER_SIGNATURE, FIRST_HELPER + number % 0x60]));
    let allocation = address(image.len());
    image.extend([ALLOCATION_SIGNATURE, 0, 0, 0]);
    let helper_signatures = address(image.len());
    image.extend(words(&(0..HELPERS).map(|number| texts + 2 * number).collect::<Vec<_>>()));
    let allocation_signatures = address(image.len());
    image.extend(words(&vec![allocation; CELLS as usize]));
    let records = address(image.len());
    let shape = |flags: u32| flags | CELL_BYTES << 24;
    image.extend(words(&[CELLS_ADDRESS, HELPERS * CELL_BYTES, shape(EAGER), helper_signatures, 0]));
    for section in 1..SECTIONS {
        let cells = CELLS_ADDRESS + section * CELLS * CELL_BYTES;
        image.extend(words(&[cells, CELLS * CELL_BYTES, shape(0), allocation_signatures, 0]));
    }
    let entry = words(&[IMPORT_SECTIONS, records, SECTIONS * 20]);
    image[LIST_ENTRY_AT..LIST_ENTRY_AT + entry.len()].copy_from_slice(&entry);
    let size = (image.len() as u32 - SECTION_OFFSET).to_le_bytes();
    SECTION_BYTES_AT.iter().for_each(|at| image[*at..*at + size.len()].copy_from_slice(&size));
    image
}

fn start_liar(image: &Path) -> Workload {
    Workload::start_with("false_runtime", &["600", image.to_str().unwrap()])
}

/// The frames of a process, by the file of their module, with the names of functions.
fn frames_of(profile: &Profile, pid: u32) -> Vec<(&str, &Frame)> {
    let is_of = |sample: &&profiler::profile::Sample| {
        profile.process(profile.thread(sample.thread).process).pid == pid
    };
    let stacks = profile.samples().iter().filter(is_of).map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    let path = |frame: &Frame| frame.module.map_or("", |module| profile.string(profile.module(module).path));
    frames.map(|frame| (path(frame).rsplit('/').next().unwrap_or_default(), frame)).collect()
}

fn sources(frames: &[(&str, &Frame)], module: &str) -> BTreeMap<Option<SymbolSource>, usize> {
    let mut sources = BTreeMap::new();
    for (_, frame) in frames.iter().filter(|(path, _)| path.starts_with(module)) {
        let source = match frame.symbolization {
            Symbolization::Symbol(source) => Some(source),
            Symbolization::Address(_) => None,
        };
        *sources.entry(source).or_default() += 1;
    }
    sources
}

#[test]
fn false_helpers_in_the_memory_of_a_process_give_wrong_names_to_its_own_runtime_alone() {
    const RUNTIME: &str = "false_runtime";
    const LIBC: &str = "libc.so";
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join(IMAGE);
    std::fs::write(&image, image_with_huge_counts()).unwrap();
    let (liar, honest) = (start_liar(&image), Workload::start(RUNTIME));
    let pids = vec![liar.pid(), honest.pid()];
    let targets = Profiler::builder().target(Target::Pids(pids)).frequency_hz(1_999);
    let profile = sample(targets, SAMPLES);
    let [liar, honest] = [&liar, &honest].map(|workload| frames_of(&profile, workload.pid()));
    assert!(liar.len() > 100 && honest.len() > 100, "{} and {}", liar.len(), honest.len());

    let names_of_liar: BTreeSet<_> = liar.iter().map(|(_, frame)| profile.string(frame.name)).collect();
    assert!(names_of_liar.iter().any(|name| name.starts_with("READYTORUN_")), "{names_of_liar:?}");
    let of_liar = sources(&liar, RUNTIME);
    assert!(of_liar.contains_key(&Some(SymbolSource::RuntimeHelper)), "the memory is read: {of_liar:?}");
    let of_honest = sources(&honest, RUNTIME);
    assert!(!of_honest.contains_key(&Some(SymbolSource::RuntimeHelper)), "{of_honest:?}");
    for frames in [&liar, &honest] {
        let of_libc = sources(frames, LIBC);
        assert!(
            !of_libc.is_empty() && !of_libc.contains_key(&Some(SymbolSource::RuntimeHelper)),
            "{of_libc:?}"
        );
    }
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
}

mod measured {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use crate::dotnet_memory_search::core_library_time;

    /// The CPU time of this process, which includes the profiler.
    fn cpu_time() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    }

    #[test]
    fn reading_the_memory_of_a_process_with_huge_counts_is_bounded() {
        /// Beyond the CPU time of an honest process, in times of that for the core library, which has 10,000 cells. A limit of
        /// 32 Ki cells takes 3 times as long, and two million cells 200 times.
        const MAX_ADDITIONAL_RATIO: f64 = 40.0;
        const PROCESSES: usize = 3;
        const SAMPLES: u64 = 100;
        let Some(_lock) = measure_alone() else { return };
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join(IMAGE);
        std::fs::write(&image, image_with_huge_counts()).unwrap();
        let cost = |workload: &Workload| {
            let target = Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(199);
            let begin = cpu_time();
            let mut session = target.build().unwrap().start().unwrap();
            wait_for_samples(&mut session, SAMPLES);
            session.stop().unwrap();
            cpu_time() - begin
        };
        // Other processes of the machine can only add to the time.
        let least = |start: &dyn Fn() -> Workload| (0..PROCESSES).map(|_| cost(&start())).min().unwrap();
        let (honest, liar) = (least(&|| Workload::start("false_runtime")), least(&|| start_liar(&image)));
        let unit = core_library_time();
        let ratio = liar.saturating_sub(honest).as_secs_f64() / unit.as_secs_f64();
        println!("CPU time: liar {liar:?}, honest {honest:?}, {ratio:.1} times {unit:?}");
        assert!(ratio < MAX_ADDITIONAL_RATIO, "{liar:?}, {honest:?}, {unit:?}");
    }
}
