//! Runs other programs, with errors that contain the command.

#![cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};
use fs_err as fs;

/// Runs `command` with the terminal as its input and output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("failed to start {}", line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs `command` and prints its output only if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    finish(command).map(drop)
}

/// Runs `command` and returns its trimmed output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = finish(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn finish(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null());
    let output = command.output().with_context(|| format!("failed to start {}", line(command)))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{} failed: {}\n{}", line(command), output.status, String::from_utf8_lossy(&said).trim_end());
    }
    Ok(output)
}

/// The target triple of programs for this machine.
pub(crate) fn host_target() -> Result<String> {
    let version = read(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

/// A command that runs `program` as root.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own_process| own_process.uid() == 0)
}

/// The path of `program`, searched in `PATH` and in the folder of `cargo install`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([cargo_home().join("bin")])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Cargo's own folder.
pub(crate) fn cargo_home() -> PathBuf {
    env::var_os("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from)
}

/// The user's home folder.
pub(crate) fn home() -> PathBuf {
    env::home_dir().unwrap_or_else(|| Path::new("/").to_owned())
}

/// The command as typed in a shell: program and arguments, without the environment.
fn line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_contains_the_command_and_its_output() {
        let error = run_quietly(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("sh -c"), "{message}");
        assert!(message.contains("exit status: 3\nbroken"), "{message}");
    }

    #[test]
    fn a_missing_program_is_an_error_with_its_name() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"));
    }

    #[test]
    fn the_output_of_a_program_is_trimmed() {
        assert_eq!(read(Command::new("echo").arg(" word ")).unwrap(), "word");
    }
}
