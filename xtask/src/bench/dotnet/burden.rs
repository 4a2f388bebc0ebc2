//! What a server loses to being looked at: the profiler beside the runtime's own perf map, and beside nothing.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};

use super::{
    super::{Setting, report::number, scenario::median},
    load::{Served, serve},
    running::{Place, Program, Running},
};

const PATHS: [&str; 2] = ["/plaintext", "/json"];

/// How the server is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Unseen,
    Profiled,
    Mapped,
}

const LOOKS: [(Look, &str); 3] = [
    (Look::Unseen, "nobody looks"),
    (Look::Profiled, "**profiler**, attached and gone again, 99 Hz"),
    (Look::Mapped, "`DOTNET_PerfMapEnabled=1` from the start"),
];

/// What was served, run by run, for each look.
pub(super) struct Measured([Vec<Served>; LOOKS.len()]);

pub(super) fn measure(setting: &Setting) -> Result<Measured> {
    let mut served = [const { Vec::new() }; LOOKS.len()];
    for run in 1..=setting.runs {
        for ((look, words), served) in LOOKS.iter().zip(&mut served) {
            eprintln!("run {run}: a server under load, {words}");
            served.push(one_run(*look, setting)?);
        }
    }
    Ok(Measured(served))
}

/// A server of its own for each run: none inherits what was compiled for another.
fn one_run(look: Look, setting: &Setting) -> Result<Served> {
    const WARM_UP_SECONDS: u64 = 3;
    let perf_map = (look == Look::Mapped).then_some("1");
    let server =
        Running::start_idle(Program::Server { paths: &PATHS }, Place::Host, perf_map, &setting.folder)?;
    let port = server.port()?;
    serve(port, &PATHS, WARM_UP_SECONDS)?;
    let seconds = setting.seconds(10);
    if look != Look::Profiled {
        return serve(port, &PATHS, seconds);
    }
    // Its beginning and its end are within the time of the load.
    let mut profiler = profile(&setting.profiler, server.pid(), seconds * 3 / 4, &setting.folder).spawn()?;
    let served = serve(port, &PATHS, seconds);
    ensure!(profiler.wait()?.success(), "the profiler failed");
    served
}

fn profile(profiler: &Path, pid: u32, seconds: u64, folder: &Path) -> Command {
    let mut command = Command::new(profiler);
    command.args(["-q", "-p", &pid.to_string(), "-d", &seconds.to_string(), "-o"]);
    command.arg(folder.join("burden.folded")).stdin(Stdio::null());
    command
}

impl Measured {
    pub(super) fn markdown(&self) -> String {
        let mut text =
            "| an ASP.NET Core server under full load | requests/s | 99.9 % within ms | longest pause ms |\n\
                        |---|---:|---:|---:|\n"
                .to_owned();
        for ((_, words), served) in LOOKS.iter().zip(&self.0) {
            let cell = |figure: fn(&Served) -> f64| number(median(served.iter().map(figure).collect()));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {words} | {} | {} | {} |",
                cell(|served| served.requests_per_second),
                cell(|served| served.rare_milliseconds),
                cell(|served| served.longest_milliseconds)
            );
        }
        text
    }
}
