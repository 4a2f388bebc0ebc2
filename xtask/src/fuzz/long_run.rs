//! Runs the targets for minutes, several at a time, with large inputs, and prints a table of what they did.

use std::{collections::BTreeSet, ffi::OsString, fmt::Write as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use super::{
    Inputs, Limits, failures_folder, for_each_at_once, fuzzer, output, statistics::Statistics,
    targets_at_once,
};
use crate::project;

const INPUT_BYTES_LIMIT: u32 = 1 << 20;

/// Twice the memory of a short run: libFuzzer has the whole corpus in memory.
const MEMORY_MIB_LIMIT: u32 = 1024;

/// One run of a target.
struct Row {
    target: String,
    /// `None` when it was killed.
    statistics: Option<Statistics>,
    corpus_files: usize,
    failures: usize,
}

/// Runs the targets for `minutes` altogether.
///
/// # Errors
/// When an input fails. The other targets run nevertheless.
pub(super) fn run(programs: &Path, targets: &[String], minutes: u32) -> Result<()> {
    let at_once = targets_at_once().min(targets.len());
    let seconds = seconds_of_each(minutes, targets.len(), at_once)?;
    println!("{} targets, {at_once} at a time, {seconds} s each", targets.len());
    let mut rows = for_each_at_once(targets, |target| run_target(programs, target, seconds))?;
    rows.sort_by(|one, other| one.target.cmp(&other.target));
    print!("\n{}", table(&rows));
    ensure_no_failures(&rows)
}

/// The time of each target: the same for all, so that the last one ends in time.
fn seconds_of_each(minutes: u32, targets: usize, at_once: usize) -> Result<u32> {
    let turns = u32::try_from(targets.div_ceil(at_once))?;
    let seconds = minutes.saturating_mul(60) / turns;
    ensure!(seconds > 0, "{minutes} minutes are less than a second for each of {targets} targets");
    Ok(seconds)
}

fn run_target(programs: &Path, target: &str, seconds: u32) -> Result<Row> {
    let corpus = output("long-corpus").join(target);
    let limits = Limits {
        inputs: Inputs::Generated { seconds },
        input_bytes: INPUT_BYTES_LIMIT,
        memory_mib: MEMORY_MIB_LIMIT,
    };
    let mut fuzzer = fuzzer(programs, target, &corpus, &limits)?;
    // The length of inputs grows by about a byte with each input that finds nothing new.
    fuzzer.args(["-len_control=1", "-print_final_stats=1"]);
    let path = output("logs").join(target).with_extension("log");
    fs::create_dir_all(output("logs"))?;
    let log = fs::File::create(&path)?.into_file();
    fuzzer.stdout(log.try_clone()?).stderr(log);
    let known_failures = names_in(&failures_folder(target))?;
    let status = fuzzer.status().with_context(|| format!("failed to start {target}"))?;
    let new_failures = names_in(&failures_folder(target))?.difference(&known_failures).count();
    let row = Row {
        target: target.to_owned(),
        statistics: Statistics::parse(&String::from_utf8_lossy(&fs::read(&path)?)),
        corpus_files: names_in(&corpus)?.len(),
        // The same input can have failed before.
        failures: new_failures.max(usize::from(!status.success())),
    };
    println!("{target}: {status}; log: {}", project::relative(&path).display());
    Ok(row)
}

fn names_in(folder: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

/// A line for each target.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut line = |target: &str, cells: [&str; 6]| {
        let [executions, per_second, edges, corpus, peak, failures] = cells;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{target:<14} {executions:>12} {per_second:>12} {edges:>6} {corpus:>12} {peak:>8} {failures:>8}"
        );
    };
    line("target", ["executions", "executions/s", "edges", "corpus files", "peak MiB", "failures"]);
    for row in rows {
        let number = |value: fn(&Statistics) -> u64| {
            row.statistics.as_ref().map_or_else(|| "-".to_owned(), |statistics| value(statistics).to_string())
        };
        line(
            &row.target,
            [
                &number(|statistics| statistics.executions),
                &number(|statistics| statistics.executions_per_second),
                &number(|statistics| statistics.edges),
                &row.corpus_files.to_string(),
                &number(|statistics| statistics.peak_mib),
                &row.failures.to_string(),
            ],
        );
    }
    text
}

fn ensure_no_failures(rows: &[Row]) -> Result<()> {
    let failed = rows.iter().filter(|row| row.failures > 0).map(|row| row.target.as_str());
    let failed: Vec<_> = failed.collect();
    let folder = output("failures");
    ensure!(
        failed.is_empty(),
        "inputs failed: {}; they are in {}",
        failed.join(", "),
        project::relative(&folder).display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: &str, failures: usize) -> Row {
        let statistics =
            Statistics { executions: 7_000_000, executions_per_second: 9_000, edges: 655, peak_mib: 41 };
        Row { target: target.to_owned(), statistics: Some(statistics), corpus_files: 12, failures }
    }

    #[test]
    fn the_time_is_divided_among_the_turns() {
        assert_eq!(seconds_of_each(60, 24, 2).unwrap(), 300);
        assert_eq!(seconds_of_each(60, 23, 2).unwrap(), 300);
        assert_eq!(seconds_of_each(60, 23, 1).unwrap(), 156);
        assert_eq!(seconds_of_each(5, 1, 1).unwrap(), 300);
        assert!(seconds_of_each(1, 200, 2).is_err());
    }

    #[test]
    fn the_table_has_a_line_for_each_target_with_equal_columns() {
        let killed = Row { statistics: None, ..row("killed", 1) };
        let table = table(&[row("dwarf", 0), killed]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
        let cells: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(cells, ["dwarf", "7000000", "9000", "655", "12", "41", "0"]);
        assert!(lines[2].contains(" - ") && lines[2].ends_with('1'), "{table}");
    }

    #[test]
    fn a_failure_of_a_target_fails_the_run_and_names_it() {
        ensure_no_failures(&[row("dwarf", 0)]).unwrap();
        let error = ensure_no_failures(&[row("dwarf", 0), row("elf", 2)]).unwrap_err().to_string();
        assert!(error.contains("elf") && !error.contains("dwarf"), "{error}");
    }
}
