//! Tries what the sandbox refuses, and prints each attempt with its error.
//!
//! `sandboxed session PID DIRECTORY` samples a process. The directory has the files `foreign`, of another user, and `own`,
//! of root. `sandboxed files DIRECTORY OUTPUTS` is confined as commands on recordings are: it may write into `OUTPUTS`.
//! `sandboxed sending DIRECTORY OUTPUTS` is confined as threads that send are.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    net::{TcpListener, UdpSocket},
    os::fd::AsFd as _,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Result, bail};
use profiler::{
    Profiler, Session, Target,
    sandbox::{confine_to_files, restore_file_rights, start_confined},
};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["session", pid, directory] => session(pid.parse()?, directory.as_ref()),
        ["files", directory, outputs] => files(directory.as_ref(), outputs.as_ref()),
        ["sending", directory, outputs] => sending(directory.as_ref(), outputs.as_ref()),
        _ => bail!("usage: sandboxed session PID DIRECTORY, sandboxed files|sending DIRECTORY OUTPUTS"),
    }
}

fn session(pid: u32, directory: &Path) -> Result<()> {
    let mut session = Profiler::builder().target(Target::Pid(pid)).sandbox(true).build()?.start()?;
    std::thread::scope(|scope| scope.spawn(|| try_all("thread", directory)).join())
        .map_err(|_| io::Error::other("the thread panicked"))??;
    try_all("main", directory)?;
    session.set_frequency_hz(49);
    let samples = sample(&mut session)?;
    let later = sample(&mut session)?;
    drop(session);
    restore_file_rights()?;
    print_attempt("restored", "write an own file", write_to(&directory.join("own")))?;
    writeln!(io::stdout(), "at 49 Hz: {later} samples")?;
    writeln!(io::stdout(), "{samples} samples")?;
    Ok(())
}

/// Samples until there are samples, for at most a minute. Returns their number.
fn sample(session: &mut Session) -> Result<u64> {
    const INTERVAL: Duration = Duration::from_millis(200);
    for _ in 0..300 {
        let samples = session.take_profile(INTERVAL)?.total_value();
        if samples > 0 {
            return Ok(samples);
        }
    }
    Ok(0)
}

fn files(directory: &Path, outputs: &Path) -> Result<()> {
    let opened = File::open(outputs)?;
    confine_to_files(&[opened.as_fd()], false)?;
    try_all("files", directory)?;
    print_attempt("files", "write an output", fs::write(outputs.join("output"), "content"))?;
    Ok(())
}

fn sending(directory: &Path, outputs: &Path) -> Result<()> {
    let opened = File::open(outputs)?;
    start_confined(&[opened.as_fd()], || try_sending(directory, outputs))??;
    print_attempt("outside", "write an own file", write_to(&directory.join("own")))?;
    Ok(())
}

/// What the system call filter of a session refuses is not refused yet.
fn try_sending(directory: &Path, outputs: &Path) -> io::Result<()> {
    let print = |attempt, result| print_attempt("sending", attempt, result);
    print("start a program", Command::new("/bin/true").status().map(drop))?;
    print("write a foreign file", write_to(&directory.join("foreign")))?;
    print("write an own file", write_to(&directory.join("own")))?;
    print("create a file", File::create(directory.join("new")).map(drop))?;
    print("remove a file", fs::remove_file(directory.join("own")))?;
    print("read a foreign file", fs::read(directory.join("foreign")).map(drop))?;
    print("read an own file", fs::read(directory.join("own")).map(drop))?;
    print("write an output", fs::write(outputs.join("output"), "content"))
}

fn try_all(place: &str, directory: &Path) -> io::Result<()> {
    let print = |attempt, result| print_attempt(place, attempt, result);
    print("start a program", Command::new("/bin/true").status().map(drop))?;
    print("write a foreign file", write_to(&directory.join("foreign")))?;
    print("write an own file", write_to(&directory.join("own")))?;
    print("create a file", File::create(directory.join("new")).map(drop))?;
    print("remove a file", fs::remove_file(directory.join("foreign")))?;
    print("read a foreign file", fs::read(directory.join("foreign")).map(drop))?;
    print("listen", TcpListener::bind("127.0.0.1:0").map(drop))?;
    print("send", UdpSocket::bind("127.0.0.1:0").map(drop))?;
    let another = Profiler::builder().target(Target::Everything).build().and_then(Profiler::start);
    print("load a BPF program", another.map(drop).map_err(io::Error::other))
}

fn write_to(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path).map(drop)
}

fn print_attempt(place: &str, attempt: &str, result: io::Result<()>) -> io::Result<()> {
    let outcome = result.map_or_else(|error| format!("refused: {error}"), |()| "done".to_owned());
    writeln!(io::stdout(), "{place}: {attempt}: {outcome}")
}
