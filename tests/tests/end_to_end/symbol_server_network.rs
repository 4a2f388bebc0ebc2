//! Tests symbol servers over TLS and behind a proxy.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use profiler_tests::{
    FoldedStacks, Outcome, Response, SymbolServer, profiler, run_beside_others, run_command,
};

use crate::symbol_servers::{FUNCTION, Stripped};

/// A TLS server for the files in a folder: `openssl s_server`. Dropping it stops the server.
struct TlsServer {
    child: Child,
    port: String,
}

impl TlsServer {
    /// Serves `folder`, which has `certificate.pem` and `key.pem` for `localhost`.
    fn start(folder: &Path) -> Self {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            "certificate.pem",
            "-key",
            "key.pem",
            "-WWW",
        ]);
        let mut child = openssl
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut ports =
            lines.filter_map(|line| Some(line.strip_prefix("ACCEPT ")?.rsplit_once(':')?.1.to_owned()));
        let port = ports.next().expect("openssl says its port");
        // Keeps the output pipe open, because the server continues to write.
        std::thread::spawn(move || ports.for_each(drop));
        Self { child, port }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a key and a certificate for `localhost` in `folder`.
fn make_certificate(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    openssl.args(["-keyout", "key.pem", "-out", "certificate.pem"]).current_dir(folder);
    let run = run_command(&mut openssl);
    assert_eq!(run.code(), 0, "{}", run.stderr);
}

/// Replays a capture with a symbol server, an empty cache and these environment variables.
fn replay(capture: &Path, url: &str, variables: &[(&str, &str)]) -> Outcome {
    let cache = tempfile::tempdir().unwrap();
    let mut command = profiler(&["replay"]);
    command.arg(capture).args(["--symbol-server", url, "--symbol-cache"]).arg(cache.path());
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(variable).env_remove(variable.to_uppercase());
    }
    let run = run_command(command.env_remove("SSL_CERT_FILE").envs(variables.iter().copied()));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    run
}

fn is_symbolized(run: &Outcome) -> bool {
    FoldedStacks::parse(&run.stdout).percent(|stack| stack.has(FUNCTION)) > 30.0
}

#[test]
fn symbols_come_over_tls_from_a_server_with_a_trusted_certificate() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let capture = stripped.capture();
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path());
    // openssl answers 200 for a file that does not exist: this is the first path that is asked for.
    let served = folder.path().join(stripped.ssqp_path().trim_start_matches('/'));
    fs::create_dir_all(served.parent().unwrap()).unwrap();
    fs::write(served, stripped.debug_file()).unwrap();
    let server = TlsServer::start(folder.path());
    let url = format!("https://localhost:{}", server.port);
    let certificate = folder.path().join("certificate.pem");

    let trusted = replay(&capture, &url, &[("SSL_CERT_FILE", certificate.to_str().unwrap())]);
    assert!(is_symbolized(&trusted), "{}\n{}", trusted.stdout, trusted.stderr);
    let untrusted = replay(&capture, &url, &[]);
    assert!(!is_symbolized(&untrusted), "{}", untrusted.stdout);
    assert!(untrusted.stderr.contains("certificate"), "{}", untrusted.stderr);
}

#[test]
fn requests_go_through_the_proxy_of_the_environment() {
    let Some(_lock) = run_beside_others() else { return };
    let stripped = Stripped::new();
    let capture = stripped.capture();
    let proxy = SymbolServer::start([]);
    replay(&capture, "http://symbols.invalid", &[("ALL_PROXY", &proxy.url())]);
    let asked = proxy.requested_paths();
    assert!(asked.iter().any(|target| target.contains("symbols.invalid")), "{asked:?}");

    let server =
        SymbolServer::start([(stripped.debuginfod_path(), Response::File(stripped.debug_file().to_vec()))]);
    let through_nothing = [("ALL_PROXY", proxy.url()), ("NO_PROXY", "127.0.0.1".to_owned())];
    let variables = through_nothing.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert!(is_symbolized(&replay(&capture, &server.url(), &variables)), "NO_PROXY names the server");
}
