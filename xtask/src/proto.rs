//! `cargo xtask proto`: writes the messages of OTLP profiles in Rust from their definitions.
//!
//! Only this command depends on a compiler of protobuf, by a feature: the others need not wait for its build. `tidy` compares
//! hashes that the written file contains.

#![cfg(feature = "commands")]

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{digest, project};

/// Write the messages of OTLP profiles in Rust from `crates/agent/proto`.
#[derive(Args)]
pub(crate) struct Proto {
    /// Fail if the messages are not what the definitions give, instead of writing them.
    #[arg(long)]
    check: bool,
}

/// The folder of the definitions.
const DEFINITIONS: &str = "crates/agent/proto";

/// The file that is written.
const MESSAGES: &str = "crates/agent/src/otlp/messages.rs";

const SOURCE_HASH: &str = "//! sha256 of the definitions: ";
const BODY_HASH: &str = "//! sha256 of the lines below: ";

const HINT: &str = "run `cargo xtask proto`";

impl Proto {
    #[cfg(feature = "proto")]
    pub(crate) fn run(&self) -> Result<()> {
        let text = writer::text()?;
        if self.check {
            let is_current = fs::read_to_string(path()).is_ok_and(|current| current == text);
            anyhow::ensure!(is_current, "{MESSAGES} is not what {DEFINITIONS} gives: {HINT}");
            return Ok(());
        }
        fs::write(path(), text).with_context(|| format!("failed to write {MESSAGES}"))?;
        println!("{MESSAGES}");
        Ok(())
    }

    #[cfg(not(feature = "proto"))]
    pub(crate) fn run(&self) -> Result<()> {
        let features = ["run", "--quiet", "--locked", "--package", "xtask", "--features", "proto"];
        let mut cargo = crate::workspace::cargo(&features);
        cargo.args(["--", "proto"]);
        if self.check {
            cargo.arg("--check");
        }
        crate::shell::run(&mut cargo)
    }
}

/// Compares the messages with the definitions.
pub(crate) fn check() -> Result<()> {
    Proto { check: true }.run()
}

/// A line if the definitions or the messages have changed since the messages were written.
pub(crate) fn outdated() -> Result<Option<String>> {
    let text = fs::read_to_string(path()).with_context(|| format!("failed to read {MESSAGES}"))?;
    let source = digest::of_sources(&[DEFINITIONS])?;
    Ok((!has_hashes(&text, &source)).then(|| format!("{MESSAGES}: outdated or edited: {HINT}")))
}

fn path() -> PathBuf {
    project::root().join(MESSAGES)
}

/// Whether a text has the hash of the definitions and that of its own lines below the two.
fn has_hashes(text: &str, source: &str) -> bool {
    let value = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let body = text.split_once(BODY_HASH).and_then(|(_, rest)| rest.split_once('\n'));
    let body = body.map(|(_, body)| digest::sha256(body.as_bytes()));
    value(SOURCE_HASH) == Some(source) && value(BODY_HASH) == body.as_deref()
}

#[cfg(feature = "proto")]
mod writer {
    //! Compiles the definitions.

    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use anyhow::ensure;
    use prost_build::{Config, Module};

    use super::*;

    /// The definition whose imports are all that is needed.
    const ROOT: &str = "opentelemetry/proto/collector/profiles/v1development/profiles_service.proto";

    pub(super) fn text() -> Result<String> {
        let body = formatted(&modules()?)?;
        Ok(format!(
            "//! The messages of OTLP profiles, written by `cargo xtask proto` from the definitions in `{DEFINITIONS}`.\n\
             {SOURCE_HASH}{}\n{BODY_HASH}{}\n{body}",
            digest::of_sources(&[DEFINITIONS])?,
            digest::sha256(body.as_bytes()),
        ))
    }

    /// A module for each package, in modules for the parts of its name.
    fn modules() -> Result<String> {
        let definitions = protox::compile([ROOT], [project::root().join(DEFINITIONS)])?;
        let module = |package: &str| Module::from_protobuf_package_name(package);
        let files = definitions.file.into_iter().map(|file| (module(file.package()), file));
        let mut config = Config::new();
        config.disable_comments(["."]);
        // An element of a set. prost-build does not derive these where a message has a list of messages.
        config.type_attribute(".opentelemetry.proto.profiles.v1development.Location", "#[derive(Eq, Hash)]");
        let mut packages: Vec<_> = config.generate(files.collect())?.into_iter().collect();
        packages.sort();
        let mut text = String::new();
        let mut open: Vec<String> = Vec::new();
        for (module, items) in packages {
            let parts: Vec<String> = module.parts().map(str::to_owned).collect();
            let shared = open.iter().zip(&parts).take_while(|(open, part)| open == part).count();
            text += &"}\n".repeat(open.len() - shared);
            text.extend(parts[shared..].iter().map(|part| format!("pub mod {part} {{\n")));
            text += &items;
            open = parts;
        }
        Ok(text + &"}\n".repeat(open.len()))
    }

    /// The text in the format of the project's files.
    fn formatted(text: &str) -> Result<String> {
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--edition", "2024", "--config-path"]).arg(project::root());
        let mut child = rustfmt.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("rustfmt has no input")?;
        input.write_all(text.as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "rustfmt failed: {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_are_those_of_the_definitions() {
        assert_eq!(outdated().unwrap(), None);
    }

    #[test]
    fn an_edited_file_is_outdated() {
        let text = format!("{SOURCE_HASH}source\n{BODY_HASH}{}\nbody\n", digest::sha256(b"body\n"));
        assert!(has_hashes(&text, "source"));
        assert!(!has_hashes(&text, "another source"));
        assert!(!has_hashes(&text.replace("body", "edited"), "source"));
        assert!(!has_hashes("body\n", "source"));
    }
}
