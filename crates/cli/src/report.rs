//! Commands on recorded profiles: `report`, `top` and `diff`.

use std::{fs::File, io, path::Path};

use anyhow::{Context, Result, bail};
use profiler_profile::{Profile, difference::Difference};
use profiler_profile_formats::Format;

use super::{
    arguments::{CommonArguments, OutputArguments, ViewArguments},
    exit,
    outputs::Outputs,
    shape::TimeRange,
    standard_streams::print_messages,
    write_profile,
    wrong_arguments::WrongArguments,
};

/// `profiler report`: writes a recorded profile to all outputs. Returns the exit code.
pub(super) fn report(
    path: &Path,
    arguments: &ViewArguments,
    output: &OutputArguments,
    common: &CommonArguments,
) -> Result<u8> {
    let outputs = Outputs::for_profile(output)?;
    outputs.confine(common, false)?;
    let profile = read(path, arguments)?;
    write_profile::write(&arguments.shape.of(&profile), outputs, common)
}

/// `profiler top`: writes the table of a recorded profile to standard output. Returns the exit code.
pub(super) fn top(path: &Path, arguments: &ViewArguments, common: &CommonArguments) -> Result<u8> {
    let outputs = Outputs::standard(Format::Top);
    outputs.confine(common, false)?;
    let profile = read(path, arguments)?;
    let profile = arguments.shape.of(&profile);
    outputs.write(&profile.data, &profile.view(), profile.event()?).into_result()?;
    Ok(exit::code_of(&profile.data))
}

/// What a profile is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum After<'a> {
    /// Another recorded profile.
    Profile(&'a Path),
    /// A time of the same profile.
    Time(TimeRange),
}

/// `profiler diff`: writes the difference of two recorded profiles, or of two times of one, to all outputs, and the table to standard
/// error if no output has it. Returns the exit code.
pub(super) fn diff(
    before: &Path,
    after: After<'_>,
    arguments: &ViewArguments,
    output: &OutputArguments,
    common: &CommonArguments,
) -> Result<u8> {
    let outputs = Outputs::open(output, Format::Top)?;
    outputs.confine(common, false)?;
    let before = read(before, arguments)?;
    let (after, shape_after) = match after {
        After::Profile(path) => (Some(read(path, arguments)?), arguments.shape.clone()),
        After::Time(range) => (None, arguments.shape.at(range)),
    };
    let shapes = [&arguments.shape, &shape_after];
    let profiles = [&before, after.as_ref().unwrap_or(&before)];
    let durations_ns = [0, 1].map(|side| shapes[side].time().length_ns(profiles[side].header().duration_ns));
    let [before, after] = [0, 1].map(|side| shapes[side].of(profiles[side]));
    let of_before = before.event()?;
    let same_event = after.data.find_event(&before.data.event(of_before).name);
    let of_after = same_event.map_or_else(|| after.event(), Ok)?;
    let (data_before, data_after) = (before.data.single_event(of_before), after.data.single_event(of_after));
    let difference = Difference::between(&data_before, &data_after).in_times(durations_ns);
    let (view_before, view_after) = (before.view(), after.view());
    let (view_before, view_after) = (view_before.single_event(of_before), view_after.single_event(of_after));
    let shown = difference.of_views(&view_before, &view_after);
    let unsupported = outputs.formats().find(|format| !Format::OF_DIFFERENCES.contains(format));
    if let Some(format) = unsupported {
        let known: Vec<_> = Format::OF_DIFFERENCES.iter().map(|format| format.name()).collect();
        let known = known.join(", ");
        let message = format!("a difference cannot be written as {} (known: {known})", format.name());
        bail!(WrongArguments::new(message));
    }
    let has_table = outputs.formats().any(|format| format == Format::Top);
    let options = outputs.options();
    let written = outputs.write_each(|format, options, to| {
        let written = if format.is_view() { &shown } else { &difference };
        format.write_difference(written, options, to)
    });
    if !common.quiet && !has_table {
        let mut table = Vec::new();
        Format::Top.write_difference(&shown, &options, &mut table)?;
        print_messages(&String::from_utf8_lossy(&table));
    }
    written.into_result()?;
    Ok(exit::code_of(&before.data).max(exit::code_of(&after.data)))
}

/// Reads a recorded profile, and symbolizes unsymbolized frames if `--debug-dir` is given.
fn read(path: &Path, arguments: &ViewArguments) -> Result<Profile> {
    let failed = || format!("failed to read `{}`", path.display());
    let profile = if path == Path::new("-") {
        Profile::read(io::stdin().lock())
    } else {
        Profile::read(File::open(path).with_context(failed)?)
    };
    let mut profile = profile.with_context(failed)?;
    if let Some(symbols) = arguments.symbols.symbols() {
        profile = symbols.symbolize_profile(&profile)?;
        profiler_findings::analyze(&mut profile);
    }
    Ok(profile)
}
