//! Looking at recorded profiles: all outputs of one, the table of one, the difference of two.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};

use super::{
    arguments::{OutputArguments, ViewArguments},
    outputs::Outputs,
    run,
};
use profiler_profile::{Profile, difference::Difference};
use profiler_profile_formats::{Format, WriteFormat as _};

/// Writes a recorded profile.
pub(super) fn report(
    path: &Path,
    arguments: &ViewArguments,
    output: &OutputArguments,
    quiet: bool,
) -> Result<u8> {
    let profile = read(path, arguments)?;
    run::write(&profile, Outputs::open(output, Format::Folded)?, quiet)
}

/// Writes the table of a recorded profile to standard output.
pub(super) fn top(path: &Path, arguments: &ViewArguments) -> Result<u8> {
    let profile = read(path, arguments)?;
    Outputs::standard(Format::Top).write(&profile)?;
    Ok(run::code_of(&profile))
}

/// Writes what is between two recorded profiles. The table goes along with every other output, as talk.
pub(super) fn diff(
    before: &Path,
    after: &Path,
    arguments: &ViewArguments,
    output: &OutputArguments,
    quiet: bool,
) -> Result<u8> {
    let (before, after) = (read(before, arguments)?, read(after, arguments)?);
    let difference = Difference::between(&before, &after);
    let outputs = Outputs::open(output, Format::Top)?;
    let unable = outputs.formats().find(|format| !Format::OF_DIFFERENCES.contains(format));
    if let Some(format) = unable {
        outputs.discard();
        let known: Vec<_> = Format::OF_DIFFERENCES.iter().map(|format| format.name()).collect();
        let known = known.join(", ");
        bail!("a difference cannot be written as {} (known: {known})", format.name());
    }
    let has_table = outputs.formats().any(|format| format == Format::Top);
    let options = outputs.options();
    outputs.write_each(|format, options, to| difference.write_with(format, options, to))?;
    if !quiet && !has_table {
        let mut table = Vec::new();
        difference.write_with(Format::Top, &options, &mut table)?;
        io::stderr().write_all(&table)?;
    }
    Ok(run::code_of(&before).max(run::code_of(&after)))
}

/// Reads a profile, names what can be named now, and shapes it.
fn read(path: &Path, arguments: &ViewArguments) -> Result<Profile> {
    let failed = || format!("failed to read `{}`", path.display());
    let profile = if path == Path::new("-") {
        Profile::read(io::stdin().lock())
    } else {
        Profile::read(File::open(path).with_context(failed)?)
    };
    let mut profile = profile.with_context(failed)?;
    if let Some(symbols) = arguments.naming.symbols() {
        profile = symbols.symbolize_profile(&profile)?;
    }
    Ok(arguments.shape.apply(profile))
}
