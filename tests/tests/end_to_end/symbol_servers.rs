//! Tests symbols from symbol servers, for a program whose debug file is only there.

use std::{
    collections::HashSet,
    fs,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use profiler::{
    Builder, Profile, Profiler,
    profile::{Reason, SymbolSource},
};
use profiler_tests::{
    FoldedStacks, Response, SymbolServer, Workload, profiler as program, run_beside_others, sample_pid,
    start_sampling, wait_for_samples, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A function of the program that is not an exported symbol.
pub(crate) const FUNCTION: &str = "alpha";

/// A stripped program, and the files of a symbol server for it.
pub(crate) struct Stripped {
    directory: TempDir,
    build_id: String,
    debug_file: Vec<u8>,
}

impl Stripped {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (program, debug_file) = (directory.path().join("stripped"), directory.path().join("elsewhere"));
        let objcopy = |option: &str, to: &Path| {
            let status = Command::new("objcopy").arg(option).arg(workload_path("shares")).arg(to).status();
            assert!(status.unwrap().success());
        };
        objcopy("--strip-all", &program);
        objcopy("--only-keep-debug", &debug_file);
        let bytes = fs::read(&debug_file).unwrap();
        fs::remove_file(&debug_file).unwrap();
        Self { build_id: build_id(&bytes), debug_file: bytes, directory }
    }

    fn start(&self) -> Workload {
        Workload::run(Command::new(self.directory.path().join("stripped")).arg("600"))
    }

    /// Captures a run of the program.
    pub(crate) fn capture(&self) -> PathBuf {
        let capture = self.directory.path().join("capture");
        let workload = self.start();
        let builder = sample_pid(workload.pid()).capture(&capture);
        let mut session = builder.build().unwrap().start().unwrap();
        wait_for_samples(&mut session, 200);
        // The end of a session completes its capture.
        drop(session.stop().unwrap());
        capture
    }

    /// Where a server of Microsoft's layout has its debug file.
    pub(crate) fn ssqp_path(&self) -> String {
        format!("/_.debug/elf-buildid-sym-{:0<40}/_.debug", self.build_id)
    }

    /// The path of its debug file on a debuginfod server.
    pub(crate) fn debuginfod_path(&self) -> String {
        format!("/buildid/{}/debuginfo", self.build_id)
    }

    /// The content of its debug file.
    pub(crate) fn debug_file(&self) -> &[u8] {
        &self.debug_file
    }

    fn file(&self) -> Response {
        Response::File(self.debug_file.clone())
    }
}

fn build_id(elf: &[u8]) -> String {
    use object::read::{Object as _, elf::ElfFile64};
    let file = ElfFile64::<object::Endianness>::parse(elf).unwrap();
    let id = file.build_id().unwrap().expect("the linker leaves a build id");
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn finds_names(profile: &Profile) -> bool {
    let stacks = FoldedStacks::from_profile(profile);
    stacks.percent(|stack| stack.has(FUNCTION)) > 30.0
}

/// The command for a replay with a symbol server and a cache of its own.
fn replay(capture: &Path, server: &SymbolServer, cache: &Path) -> Profile {
    let builder: Builder =
        Profiler::builder().replay(capture).symbol_server(server.url()).symbol_cache(cache);
    builder.build().unwrap().start().unwrap().run().unwrap()
}

#[test]
fn without_a_server_each_function_of_a_stripped_program_is_one_frame() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let replay = Profiler::builder().replay(stripped.capture()).build().unwrap().start().unwrap();
    let stacks = FoldedStacks::from_profile(&replay.run().unwrap());
    let frames = stacks.0.iter().flat_map(|stack| &stack.frames);
    let unsymbolized: HashSet<_> = frames.filter(|frame| frame.starts_with("[stripped+0x")).collect();
    // `_start`, `main`, its callees, and PLT entries.
    assert!((2..=10).contains(&unsymbolized.len()), "{unsymbolized:?}");
}

#[test]
fn a_stripped_program_is_symbolized_from_a_server_with_either_path_layout() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let capture = stripped.capture();
    let elsewhere = "/store/42".to_owned();
    let packed = Response::Compressed(stripped.debug_file.clone());
    for answers in [
        vec![(stripped.ssqp_path(), stripped.file())],
        vec![(stripped.debuginfod_path(), stripped.file())],
        vec![(stripped.debuginfod_path(), packed)],
        vec![
            (stripped.ssqp_path(), Response::Redirect(elsewhere.clone())),
            (elsewhere.clone(), stripped.file()),
        ],
    ] {
        let server = SymbolServer::start(answers);
        let cache = tempfile::tempdir().unwrap();
        let profile = replay(&capture, &server, cache.path());
        assert!(finds_names(&profile), "{:?}", profile.first_ledger().symbolized);
        assert!(profile.first_ledger().symbolized[&SymbolSource::DebugFile] > 0);
        let asked = server.requested_paths().len();
        assert!(finds_names(&replay(&capture, &server, cache.path())), "from the cache");
        assert!(server.requested_paths().iter().skip(asked).all(|path| !path.contains(&stripped.build_id)));
    }
}

#[test]
fn a_server_with_faulty_responses_costs_only_symbols_and_is_reported() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let capture = stripped.capture();
    let mut of_another = stripped.debug_file.clone();
    let id: Vec<u8> =
        (0..20).map(|i| u8::from_str_radix(&stripped.build_id[2 * i..2 * i + 2], 16).unwrap()).collect();
    let place = of_another.windows(20).position(|bytes| bytes == id).unwrap();
    of_another[place] ^= 1;
    let circle = stripped.ssqp_path();
    for (answer, reason) in [
        (Response::Status(404), Reason::NotOnSymbolServer),
        (Response::Status(500), Reason::SymbolServerFailed),
        (Response::File(of_another), Reason::SymbolServerFailed),
        (
            Response::File(stripped.debug_file[..stripped.debug_file.len() / 2].to_vec()),
            Reason::SymbolServerFailed,
        ),
        (Response::File(b"<html>sign in</html>".to_vec()), Reason::SymbolServerFailed),
        (Response::Truncated(stripped.debug_file.clone()), Reason::SymbolServerFailed),
        (Response::Redirect(circle), Reason::SymbolServerFailed),
        // A path on the server, not on this machine.
        (Response::Redirect("file:///etc/passwd".to_owned()), Reason::NotOnSymbolServer),
    ] {
        let what = format!("{answer:?}").chars().take(60).collect::<String>();
        let server = SymbolServer::start([(stripped.ssqp_path(), answer)]);
        let cache = tempfile::tempdir().unwrap();
        let profile = replay(&capture, &server, cache.path());
        assert!(!finds_names(&profile), "{what}");
        let unnamed = &profile.first_ledger().unsymbolized;
        let of_program = unnamed.keys().find(|unnamed| unnamed.module.ends_with("/stripped"));
        assert_eq!(of_program.map(|unnamed| unnamed.reason), Some(reason), "{what}: {unnamed:?}");
        let kept = fs::read_dir(cache.path().join(&stripped.build_id));
        assert_eq!(kept.into_iter().flatten().count(), 0, "{what}");
        // Only hexadecimal digits of the target's data may occur in a request.
        let is_of_layout = |path: &&String| path.ends_with("/_.debug") || path.ends_with("/debuginfo");
        let is_tame = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
        assert!(
            server.requested_paths().iter().filter(is_of_layout).all(|path| path.chars().all(is_tame)),
            "{what}"
        );
    }
}

#[test]
fn a_slow_download_is_reported_and_ctrl_c_cancels_it() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let workload = stripped.start();
    let server = SymbolServer::start([(stripped.ssqp_path(), Response::Stalled)]);
    let (cache, pid) = (tempfile::tempdir().unwrap(), workload.pid().to_string());
    let mut command = program(&["-p", &pid, "-F", "999", "-d", "500ms", "--symbol-server", &server.url()]);
    let mut child = start_sampling(command.arg("--symbol-cache").arg(cache.path()));
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "profiler: downloading symbols of stripped, 1 of 40 MB\n");

    let interrupted = Instant::now();
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let written = io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    // The server sends nothing more. Without Ctrl-C, a download that does not proceed ends after half a minute.
    assert!(interrupted.elapsed() < Duration::from_secs(25), "{:?}", interrupted.elapsed());
    assert!(written.contains("[stripped+0x"), "{written}");
    let said = io::read_to_string(said).unwrap();
    assert!(said.contains("did not end in time"), "{said}");
}
