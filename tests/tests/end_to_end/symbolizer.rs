//! Tests that addresses which are symbolized without a session have the names that a session gives them.

use std::{collections::BTreeMap, fs};

use profiler::{Address, Profile, Profiler, profile::FrameKind};
use profiler_tests::{Workload, run_beside_others, sample, sample_pid, wait_until};

use crate::dotnet_method_memory::without_diagnostics;

const SAMPLES: u64 = 500;

/// The names of the JIT code in a profile, by address. Code of the runtime that changes its name is not among it.
fn jit_names(profile: &Profile) -> BTreeMap<u64, String> {
    let frames = profile.sample_views().flat_map(|sample| sample.stack().frames());
    let named = frames.filter(|frame| frame.kind() == FrameKind::Jit && frame.source().is_ok());
    named.map(|frame| (frame.address().0, frame.name().to_owned())).collect()
}

#[test]
fn methods_of_a_runtime_have_the_names_of_a_session() {
    let Some(_lock) = run_beside_others() else { return };
    let programs = [
        ("memory", without_diagnostics("9.0", "cpu")),
        ("memory of a single file", without_diagnostics("single-file-10.0", "cpu")),
        ("events", Workload::run(Workload::dotnet_command("3.1", "cpu").env("PERF_MAP", "0"))),
    ];
    for (what, program) in programs {
        let names = jit_names(&sample(sample_pid(program.pid()), SAMPLES));
        assert!(names.values().any(|name| name == "app!Workload.Cpu.Alpha()"), "{what}: {names:?}");
        let addresses: Vec<_> = names.keys().map(|address| Address::Instruction(*address)).collect();
        let mut symbolizer = Profiler::builder().symbolizer().unwrap();
        // A runtime that does not answer in a second has not its names yet, but a reason, and is asked again.
        let symbols = wait_until("the names of all methods", || {
            let symbols = symbolizer.symbolize(program.pid(), &addresses).unwrap();
            symbols.iter().all(|symbol| symbol.source.is_ok()).then_some(symbols)
        });
        let found: Vec<_> = symbols.iter().map(|symbol| symbol.name()).collect();
        assert_eq!(found, names.values().collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn an_address_of_the_kernel_has_the_name_in_kallsyms() {
    let Some(_lock) = run_beside_others() else { return };
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = symbols.lines().find(|line| line.ends_with(" T schedule")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let mut symbolizer = Profiler::builder().symbolizer().unwrap();
    let symbols = symbolizer.symbolize_kernel(&[Address::Instruction(address + 1)]);
    assert_eq!((symbols[0].name(), symbols[0].module_address.0), ("schedule", 1));
}
