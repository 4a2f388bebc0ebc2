//! Tests the file with the events of a runtime as it sends them: `-o FILE.nettrace`.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use profiler::{
    Profile,
    profile::{FieldValue, RuntimeEventKind},
};
use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    fields::Value,
    nettrace::Decoder,
    runtime_events::{Phase, RuntimeEvent},
};
use profiler_tests::{Workload, profiler, run_beside_others, run_command, start_sampling};

use crate::dotnet_events::{await_sessions, interrupt};

/// The provider of the events of a rundown.
const RUNDOWN_PROVIDER: &str = "Microsoft-Windows-DotNETRuntimeRundown";

/// What a file has, as the profiler's own decoder reads it.
#[derive(Default)]
struct NettraceFile {
    /// The begins and whole occurrences of each kind.
    counts: BTreeMap<RuntimeEventKind, usize>,
    /// The messages of the exceptions of the workload, and whether each has a stack.
    exceptions: Vec<(String, bool)>,
    rundown_events: usize,
}

impl NettraceFile {
    fn read(bytes: &[u8]) -> Self {
        let (mut decoder, mut file) = (Decoder::with_details(), Self::default());
        decoder
            .feed(bytes, |clock, event| {
                assert!(clock.is_some());
                match event.kind.provider.as_str() {
                    RUNDOWN_PROVIDER => file.rundown_events += 1,
                    RUNTIME_PROVIDER => {
                        let Some(decoded) = RuntimeEvent::decode(event) else { return };
                        file.add(&decoded.unwrap(), !event.stack.is_empty());
                    }
                    _ => {}
                }
            })
            .unwrap();
        assert!(
            decoder.is_ended() && decoder.decoded_bytes() == bytes.len(),
            "it ends with the end of its stream"
        );
        assert_eq!(decoder.dropped_events(), 0);
        file
    }

    fn add(&mut self, event: &RuntimeEvent, has_stack: bool) {
        if event.phase != Phase::End {
            *self.counts.entry(event.kind).or_default() += 1;
        }
        let text = |name: &str| match &event.fields.iter().find(|field| field.name == name)?.value {
            Value::Text(text) => Some(text.to_string()),
            _ => None,
        };
        if text("ExceptionType").as_deref() == Some("System.InvalidOperationException") {
            self.exceptions.push((text("ExceptionMessage").unwrap(), has_stack));
        }
    }
}

/// The number of events of each kind.
fn counts(profile: &Profile) -> BTreeMap<RuntimeEventKind, usize> {
    let mut counts = BTreeMap::new();
    for event in profile.runtime_events() {
        *counts.entry(event.kind).or_default() += 1;
    }
    counts
}

#[test]
fn the_file_has_the_events_of_the_profile_as_the_runtime_sent_them() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "8.0", "9.0"] {
        let directory = tempfile::tempdir().unwrap();
        let [nettrace, recording] = ["app.nettrace", "app.profile"].map(|name| directory.path().join(name));
        let mut workload = Workload::dotnet_program(program, "events");
        let before = workload.sockets();
        let pid = workload.pid().to_string();
        let mut command = profiler(&["-p", &pid, "--events", "default", "-o"]);
        let run = start_sampling(command.arg(&nettrace).arg("-o").arg(&recording).stdout(Stdio::piped()));
        await_sessions(&workload, before);
        workload.write_line("go");
        workload.wait_for("done ");
        interrupt(&run);
        let output = run.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{program}: {stderr}");
        assert!(!stderr.contains("lacks the last events"), "{program}: {stderr}");

        let bytes = fs::read(&nettrace).unwrap();
        assert!(bytes.starts_with(b"Nettrace\x14\0\0\0!FastSerialization.1"), "{program}");
        assert_eq!(bytes.last(), Some(&1), "{program}: the tag of the end");
        assert_eq!(fs::metadata(&nettrace).unwrap().permissions().mode() & 0o777, 0o600);
        let file = NettraceFile::read(&bytes);
        let profile = Profile::read(fs::File::open(&recording).unwrap()).unwrap();
        assert_eq!(file.counts, counts(&profile), "{program}");
        let expected: Vec<_> = (0..5).map(|number| (format!("number {number}"), true)).collect();
        assert_eq!(file.exceptions, expected, "{program}");
        // The end of a rundown can block .NET Core 3.1 for ever.
        let (events, has_rundown) = (file.rundown_events, program != "3.1");
        assert_eq!(events > 100, has_rundown, "{program}: {events} events of the rundown");
        let thrown = profile.runtime_events().iter().filter(|event| {
            let type_name = event.field(&profile, "ExceptionType");
            matches!(type_name, Some(FieldValue::Text(text)) if profile.string(text) == "System.InvalidOperationException")
        });
        assert_eq!(thrown.count(), 5, "{program}");
    }
}

#[test]
fn a_file_without_stacks_has_no_rundown() {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let nettrace = directory.path().join("app.nettrace");
    let mut workload = Workload::dotnet_program("9.0", "events");
    let before = workload.sockets();
    let pid = workload.pid().to_string();
    let mut command = profiler(&["-q", "-p", &pid, "--events", "gc", "-o"]);
    let run = start_sampling(command.arg(&nettrace).stdout(Stdio::piped()));
    await_sessions(&workload, before);
    workload.write_line("go");
    workload.wait_for("done ");
    interrupt(&run);
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "nothing is written to standard output");
    let file = NettraceFile::read(&fs::read(&nettrace).unwrap());
    assert_eq!(file.counts.get(&RuntimeEventKind::GarbageCollection), Some(&9));
    assert_eq!(file.rundown_events, 0);
}

#[test]
fn a_process_without_a_runtime_leaves_no_file() {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let nettrace = directory.path().join("native.nettrace");
    let native = Workload::start("shares");
    let pid = native.pid().to_string();
    let mut command = profiler(&["-p", &pid, "-d", "0.5", "--events", "default", "-o"]);
    let run = run_command(command.arg(&nettrace));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("native.nettrace`: no .NET runtime has sent events"), "{}", run.stderr);
    assert!(!nettrace.exists());
}
