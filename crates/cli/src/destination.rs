//! Where an output is written to: a file or standard output.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    output_file::{OutputFile, inherited_descriptor},
    standard_streams::write_result,
};

/// A place for one output.
#[derive(Debug)]
pub(super) enum Destination {
    StandardOutput,
    File { path: PathBuf, file: OutputFile },
}

impl Destination {
    /// Opens a file; an existing one keeps its content.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if is_standard_output(path) {
            return Ok(Self::StandardOutput);
        }
        let file =
            OutputFile::open(path).with_context(|| format!("failed to create `{}`", path.display()))?;
        Ok(Self::File { path: path.to_owned(), file })
    }

    /// Writes the content. A closed pipe at standard output is not an error.
    pub(super) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match self {
            Self::StandardOutput => write_result(write),
            Self::File { path, file } => {
                file.write(write).with_context(|| format!("failed to write `{}`", path.display()))
            }
        }
    }
}

/// Whether the path selects standard output: `-`, `-.svg` with a format, or `/dev/stdout`.
fn is_standard_output(path: &Path) -> bool {
    let is_dash =
        path.to_str().is_some_and(|name| name == "-" || name.starts_with("-.") && !name.contains('/'));
    is_dash || inherited_descriptor(path) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_alone_or_with_an_extension_is_standard_output() {
        for path in ["-", "-.top", "/dev/stdout"] {
            assert!(is_standard_output(Path::new(path)), "{path}");
        }
        for path in ["a/-.top", "-a.top", "a-"] {
            assert!(!is_standard_output(Path::new(path)), "{path}");
        }
    }
}
