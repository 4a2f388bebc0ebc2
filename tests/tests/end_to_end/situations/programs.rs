//! The programs: how each starts in an empty folder, and what it is asked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::run_command;

/// A program that serves a port of the loopback device, or one without a port.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) start: fn(&Path, u16) -> Command,
    pub(super) requests: Requests,
}

/// What a program is asked under load.
#[derive(Clone, Copy)]
pub(super) enum Requests {
    /// This text, on a connection of its own, which the program closes then.
    Text(&'static str),
    /// What this command asks.
    Command(fn(&Path, u16) -> Command),
    /// Nothing: the program has work of its own.
    None,
}

const HTTP: Requests = Requests::Text("GET / HTTP/1.0\r\n\r\n");

/// Programs that other tests need as well.
pub(super) const PRESENT: [Program; 5] = [
    Program { name: "node", start: node, requests: HTTP },
    Program { name: "python", start: python, requests: HTTP },
    Program { name: "Python pool", start: python_pool, requests: HTTP },
    Program { name: "sleeper", start: sleeper, requests: Requests::None },
    Program { name: "batch job", start: batch_job, requests: Requests::None },
];

/// Programs of Debian's packages.
pub(super) const PACKAGED: [Program; 8] = [
    Program { name: "nginx", start: nginx, requests: HTTP },
    Program { name: "Apache", start: apache, requests: HTTP },
    Program { name: "Java", start: java, requests: HTTP },
    Program { name: "redis", start: redis, requests: Requests::Text("SET a 1\r\nGET a\r\nQUIT\r\n") },
    Program {
        name: "memcached",
        start: memcached,
        requests: Requests::Text("set a 0 0 1\r\n1\r\nget a\r\nquit\r\n"),
    },
    Program { name: "PostgreSQL", start: postgres, requests: Requests::Command(pgbench) },
    Program { name: "Prometheus", start: prometheus, requests: HTTP },
    Program { name: "gunicorn", start: gunicorn, requests: HTTP },
];

fn command(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(arguments);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

fn node(_folder: &Path, port: u16) -> Command {
    let script = format!(
        "require('http').createServer((request, answer) => answer.end('x'.repeat(1000))).listen({port}, '127.0.0.1')"
    );
    command("node", &["-e", &script])
}

fn python(folder: &Path, port: u16) -> Command {
    let directory = ["--directory", text(folder)];
    let mut python = command("python3", &["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
    python.args(directory);
    python
}

/// Eight workers that take connections from a queue.
fn python_pool(_folder: &Path, port: u16) -> Command {
    let script = format!(
        r#"import queue, socket, threading
connections = queue.Queue()
def work():
    while True:
        connection = connections.get()
        connection.recv(1000)
        connection.sendall(b"x" * 1000)
        connection.close()
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
listener = socket.create_server(("127.0.0.1", {port}))
while True:
    connections.put(listener.accept()[0])
"#
    );
    command("python3", &["-c", &script])
}

fn sleeper(_folder: &Path, _port: u16) -> Command {
    command("sh", &["-c", "while :; do sleep 0.2; done"])
}

fn batch_job(_folder: &Path, _port: u16) -> Command {
    command("sh", &["-c", "while :; do find /usr/share/doc -type f -exec cat {} + | sort | tail -n 1; done"])
}

fn nginx(folder: &Path, port: u16) -> Command {
    let settings = format!(
        "daemon off; user root; worker_processes 2; pid nginx.pid; error_log error.log; events {{}}
         http {{ access_log access.log; server {{ listen 127.0.0.1:{port}; root html; }}
         client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e; }}"
    );
    fs::create_dir_all(folder.join("html")).unwrap();
    fs::write(folder.join("html/index.html"), "x").unwrap();
    fs::write(folder.join("nginx.conf"), settings).unwrap();
    command("nginx", &["-p", text(folder), "-c", "nginx.conf", "-e", "error.log"])
}

fn apache(folder: &Path, port: u16) -> Command {
    const MODULES: &str = "/usr/lib/apache2/modules";
    let folder_text = text(folder);
    let settings = format!(
        "ServerName localhost\nServerRoot {folder_text}\nDocumentRoot {folder_text}\nListen 127.0.0.1:{port}
LoadModule mpm_event_module {MODULES}/mod_mpm_event.so\nLoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule dir_module {MODULES}/mod_dir.so\nPidFile {folder_text}/pid\nErrorLog {folder_text}/log\nUser www-data\nGroup www-data\n"
    );
    let configuration = folder.join("apache.conf");
    fs::write(&configuration, settings).unwrap();
    fs::write(folder.join("index.html"), "x").unwrap();
    command("apache2", &["-D", "FOREGROUND", "-f", text(&configuration)])
}

fn java(folder: &Path, port: u16) -> Command {
    let source = format!(
        r#"import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Server {{
    public static void main(String[] arguments) throws Exception {{
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", {port}), 0);
        server.createContext("/", exchange -> {{
            byte[] answer = "x".repeat(1000).getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        }});
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }}
}}
"#
    );
    let file = folder.join("Server.java");
    fs::write(&file, source).unwrap();
    command("java", &[text(&file)])
}

fn redis(folder: &Path, port: u16) -> Command {
    let port = port.to_string();
    command("redis-server", &["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir", text(folder)])
}

fn memcached(_folder: &Path, port: u16) -> Command {
    command("memcached", &["-u", "www-data", "-l", "127.0.0.1", "-p", &port.to_string()])
}

/// A command of PostgreSQL, which refuses to run as root.
fn postgres_command(program: &str, arguments: &[&str]) -> Command {
    let mut command = command("setpriv", &["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
    command.arg(postgres_programs().join(program)).args(arguments);
    command
}

/// The folder with the programs of the newest version: Debian's are not in the search path.
fn postgres_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let newest = versions.map(|entry| entry.unwrap().path()).max().expect("a version");
    newest.join("bin")
}

fn postgres(folder: &Path, port: u16) -> Command {
    let data = folder.join("data");
    let port = port.to_string();
    run(&mut command("chown", &["postgres", text(folder)]));
    run(&mut postgres_command("initdb", &["--auth", "trust", "--pgdata", text(&data)]));
    postgres_command("postgres", &["-D", text(&data), "-h", "127.0.0.1", "-p", &port, "-k", text(folder)])
}

/// A program in Go.
fn prometheus(folder: &Path, port: u16) -> Command {
    let settings = folder.join("prometheus.yml");
    fs::write(&settings, "").unwrap();
    let mut prometheus = command("prometheus", &[]);
    prometheus.arg(format!("--config.file={}", text(&settings)));
    prometheus.arg(format!("--storage.tsdb.path={}", text(&folder.join("data"))));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    prometheus
}

/// An arbiter and workers of Debian's Python, which has no symbols.
fn gunicorn(folder: &Path, port: u16) -> Command {
    const APPLICATION: &str =
        "def answer(environment, start):\n start(\"200 OK\", [])\n return [b\"x\" * 1000]\n";
    fs::write(folder.join("shop.py"), APPLICATION).unwrap();
    let address = format!("127.0.0.1:{port}");
    command("gunicorn", &["--chdir", text(folder), "--workers", "2", "--bind", &address, "shop:answer"])
}

fn pgbench(_folder: &Path, port: u16) -> Command {
    let port = port.to_string();
    let server = ["-h", "127.0.0.1", "-p", &port];
    run(postgres_command("pgbench", &["--initialize", "--quiet"]).args(server).arg("postgres"));
    let mut load = postgres_command("pgbench", &["--select-only", "--client=4", "--rate=400", "--time=600"]);
    load.args(server).arg("postgres");
    load
}

fn run(command: &mut Command) {
    let outcome = run_command(command);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
}
