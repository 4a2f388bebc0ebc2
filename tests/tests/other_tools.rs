//! Formats of other tools, read by these tools themselves: their published libraries, and speedscope in a browser.

use std::{fs, io::Cursor, path::Path, process::Command};

use inferno::collapse::{Collapse, perf};
use profiler::{
    Format, OutputOptions, Profile,
    profile::{Header, ProfileBuilder},
};
use profiler_tests::{Workload, file, golden_profile, outcome, privileged, profiler};

const FORMATS: [Format; 5] =
    [Format::Pprof, Format::Speedscope, Format::Firefox, Format::PerfScript, Format::TraceZip];

/// Beyond 32 bits.
const MANY: u64 = (1 << 32) + 1;

fn known() -> Profile {
    golden_profile(MANY)
}

fn bytes(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write_with(format, &OutputOptions::default(), &mut bytes).unwrap();
    bytes
}

fn write(profile: &Profile, folder: &Path, name: &str) {
    for format in FORMATS {
        fs::write(folder.join(format!("{name}.{}", format.extensions()[0])), bytes(profile, format)).unwrap();
    }
}

#[test]
fn perf_script_text_collapses_to_stacks_with_the_time_they_took() {
    let mut collapsed = Vec::new();
    let text = bytes(&known(), Format::PerfScript);
    perf::Folder::default().collapse(Cursor::new(text), &mut collapsed).unwrap();
    let collapsed = String::from_utf8(collapsed).unwrap();
    let lines: Vec<_> = collapsed.lines().map(|line| line.rsplit_once(' ').unwrap()).collect();
    let samples_of = |stack: &str| {
        const PERIOD_NS: u64 = 10_000_000;
        let found = lines.iter().find(|(found, _)| *found == stack);
        found.map(|(_, time_ns)| time_ns.parse::<u64>().unwrap() / PERIOD_NS / MANY)
    };
    for (stack, samples) in [
        ("app;main;Demo.Program.Main;Demo.Program.Hot", 40),
        ("app;main;a:b  [31m<script>alert(\"&\")</script>", 1),
        ("app;main;'\"><b onclick=x> 5/6 [0] 1.0: x:", 1),
        ("wor_ker_1/2;main;outer;inlined", 2),
        ("wor_ker_1/2;main;ksys_read", 20),
    ] {
        assert_eq!(samples_of(stack), Some(samples), "{stack}: {collapsed}");
    }
}

#[test]
fn the_readers_of_other_tools_read_what_is_written_for_them() {
    let folder = tempfile::tempdir().unwrap();
    write(&known(), folder.path(), "known");
    write(&ProfileBuilder::default().finish(Header::default()), folder.path(), "empty");
    read(&["readers/known.test.mjs"], folder.path());
}

#[test]
fn the_readers_of_other_tools_read_the_profile_of_a_real_dotnet_process() {
    let Some(_turn) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
    let pid = workload.pid().to_string();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let names = [
        "a.html",
        "a.profile",
        "a.folded",
        "a.pb.gz",
        "a.speedscope.json",
        "a.json",
        "a.perf.txt",
        "a.trace.zip",
    ];
    let mut command = profiler(&["-p", &pid, "-F", "499", "-d", "3"]);
    for name in names {
        command.args(["-o", &place(name)]);
    }
    let run = outcome(&mut command);
    assert_eq!(run.code(), 0, "{run:?}");
    read(&["readers/dotnet.test.mjs"], folder.path());
}

/// Runs these scripts on the files of a folder.
fn read(scripts: &[&str], profiles: &Path) {
    let readers = file("../target/readers/node_modules");
    if !readers.is_dir() {
        assert!(std::env::var_os("PROFILER_REQUIRE_PRIVILEGED").is_none(), "the readers are missing");
        eprintln!("skipped: the readers are missing: cargo xtask setup");
        return;
    }
    let scripts = scripts.iter().map(|script| file(script));
    let mut node = Command::new("node");
    node.arg("--test").args(scripts).env("PROFILES", profiles).env("READERS", readers);
    let node = node.output().unwrap();
    let said = String::from_utf8_lossy(&node.stdout);
    assert!(node.status.success(), "{said}{}", String::from_utf8_lossy(&node.stderr));
}
