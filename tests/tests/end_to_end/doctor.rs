//! Tests `profiler doctor -p PID`, which reports the runtime of a process and how its frames are symbolized.

use std::process::Command;

use profiler_tests::{Workload, await_optimized, profiler, run_beside_others, run_command, workload_path};

/// The output lines of the command by name.
struct Findings(String);

impl Findings {
    fn new(workload: &Workload) -> Self {
        let outcome = run_command(&mut profiler(&["doctor", "-p", &workload.pid().to_string()]));
        assert_eq!(outcome.code(), 0, "{outcome:?}");
        Self(outcome.stdout)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  ")).map(str::trim_start)
    }

    fn assert(&self, name: &str, beginning: &str) {
        let found = self.get(name).unwrap_or_else(|| panic!("no {name} in {}", self.0));
        assert!(found.starts_with(beginning), "{name}: {found}");
    }

    /// The number behind a prefix.
    fn number(&self, name: &str, beginning: &str) -> u32 {
        let rest = self.get(name).and_then(|found| found.strip_prefix(beginning));
        let number = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{name}: {:?}", self.get(name)))
    }
}

fn single_file(program: &str) -> Workload {
    Workload::run(Command::new(workload_path("dotnet").join(program)).args(["cpu", "600"]))
}

#[test]
fn doctor_reports_the_runtime_version_and_its_memory_or_its_events_as_symbol_source() {
    let Some(_lock) = run_beside_others() else { return };
    let sources =
        [("3.1", "3.1.23", "by the runtime's events"), ("9.0", "9.0.1", "from the runtime's memory")];
    for (version, whole, source) in sources {
        let workload = Workload::run(Workload::dotnet_command(version, "cpu").env("PERF_MAP", "0"));
        let findings = Findings::new(&workload);
        findings.assert("process", &format!("ok        {} (dotnet), .NET {whole} in ", workload.pid()));
        findings.assert("JIT frames", &format!("ok        named {source}"));
        assert!(findings.number("precompiled frames", "ok        named from ") > 0);
    }
}

#[test]
fn doctor_reports_call_tables_and_helpers_of_a_stripped_runtime() {
    let Some(_lock) = run_beside_others() else { return };
    let findings = Findings::new(&Workload::dotnet_program("9.0", "cpu"));
    let native = findings.get("native frames").unwrap();
    let of_runtime = "exports, runtime call tables and runtime helpers: libcoreclr.so";
    assert!(native.starts_with("degraded  ") && native.contains(of_runtime), "{native}");
}

#[test]
fn doctor_reports_the_perf_map_the_memory_or_no_symbols_without_a_diagnostics_socket() {
    let Some(_lock) = run_beside_others() else { return };
    let command = |version: &str, map: &str| {
        let mut command = Workload::dotnet_command(version, "cpu");
        command.env("COMPlus_EnableDiagnostics", "0").env("PERF_MAP", map);
        command
    };
    let workload = Workload::run(&mut command("9.0", "3"));
    let map = format!("/tmp/perf-{}.map", workload.pid());
    await_optimized(map.as_ref());
    Findings::new(&workload).assert("JIT frames", &format!("ok        named by `{map}`"));
    let silent = Workload::run(&mut command("9.0", "0"));
    Findings::new(&silent).assert("JIT frames", "ok        named from the runtime's memory");
    let old = Workload::run(&mut command("3.1", "0"));
    Findings::new(&old).assert("JIT frames", "degraded  no diagnostics socket and no perf map");
}

#[test]
fn doctor_reports_a_single_file_program() {
    let Some(_lock) = run_beside_others() else { return };
    let plain = Findings::new(&single_file("single-file"));
    assert!(plain.get("process").unwrap().contains(".NET 9.0.7, a single-file program with "), "{}", plain.0);
    assert!(plain.get("process").unwrap().ends_with(" and 0 compressed"));
    assert!(plain.number("precompiled frames", "ok        named from ") > 0);
    let compressed = Findings::new(&single_file("single-file-compressed"));
    assert!(compressed.get("process").unwrap().contains("with 0 assemblies as they are"), "{}", compressed.0);
    assert!(compressed.get("precompiled frames").unwrap().contains("named by the runtime"));
}

#[test]
fn doctor_reports_no_managed_frames_for_a_native_process() {
    let Some(_lock) = run_beside_others() else { return };
    let findings = Findings::new(&Workload::start("shares"));
    assert!(findings.get("process").unwrap().ends_with("native code"), "{}", findings.0);
    assert_eq!((findings.get("JIT frames"), findings.get("precompiled frames")), (None, None));
    assert!(findings.get("native frames").is_some());
}

#[test]
fn doctor_reports_unsymbolized_jit_code_without_a_perf_map() {
    let Some(_lock) = run_beside_others() else { return };
    let findings = Findings::new(&Workload::start_with("jit", &["600", "none"]));
    findings.assert("JIT frames", "degraded  no perf map and no jitdump");
}

#[test]
fn doctor_reports_the_perf_map_of_a_parent_whose_code_a_process_has() {
    let Some(_lock) = run_beside_others() else { return };
    let findings = Findings::new(&Workload::start_with("inherited_jit", &["600", "map"]));
    findings.assert("JIT frames", "ok        named by `/tmp/perf-");
}
