//! How many managed stacks reach the function that began their thread, by what the program does.

use std::{fmt::Write as _, path::Path};

use anyhow::Result;

use super::{
    super::report::number,
    running::{Place, Program, Running},
    sampled,
};

const FREQUENCY_HZ: u64 = 999;

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// What the workload does, and what that shows.
const MODES: [(&str, &str); 6] = [
    ("cpu", "nested calls and loops"),
    ("generic", "generic methods and delegates"),
    ("tiny", "methods without frames"),
    ("async", "asynchronous methods"),
    ("gc", "objects that are soon garbage"),
    ("web", "a small server and its client"),
];

const SERVER: Program = Program::Server { paths: &["/plaintext", "/json"] };

/// Everything that was measured: rows by what was done, columns by version, in percent.
pub(super) struct Measured(Vec<(String, [Option<f64>; VERSIONS.len()])>);

pub(super) fn measure(seconds: u64, folder: &Path) -> Result<Measured> {
    let mut rows = Vec::new();
    for (mode, what) in MODES {
        let mut row = [None; VERSIONS.len()];
        for (cell, version) in row.iter_mut().zip(VERSIONS) {
            *cell = Some(whole_percent(Program::App { version, mode }, seconds, folder)?);
        }
        rows.push((format!("`{mode}`: {what}"), row));
    }
    rows.push(("ASP.NET Core under load".to_owned(), [None, Some(whole_percent(SERVER, seconds, folder)?)]));
    Ok(Measured(rows))
}

fn whole_percent(program: Program, seconds: u64, folder: &Path) -> Result<f64> {
    let running = Running::start(program, Place::Host, folder)?;
    let entry = running.target().entry()?;
    Ok(sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?.whole_percent(&entry))
}

impl Measured {
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("| whole managed stacks, % | {} |\n|---", VERSIONS.join(" | "));
        text.push_str(&"|---:".repeat(VERSIONS.len()));
        text.push_str("|\n");
        for (what, row) in &self.0 {
            let cells = row.map(|cell| cell.map_or("-".to_owned(), number)).join(" | ");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {what} | {cells} |");
        }
        text
    }
}
