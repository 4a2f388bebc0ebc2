//! Writes a profile to all outputs, and its summary to standard error.

use std::borrow::Cow;

use anyhow::Result;
use profiler_profile::EventId;

use super::{
    arguments::CommonArguments,
    exit,
    outputs::{Outputs, WrittenOutputs},
    shape::ShapedProfile,
    standard_streams::{print_message, print_messages},
    summary::{self, Contents},
};

/// Writes a profile to all outputs and its summary to standard error, and returns the exit code.
pub(super) fn write(profile: &ShapedProfile<'_>, outputs: Outputs, common: &CommonArguments) -> Result<u8> {
    write_event(profile, profile.event()?, outputs, common).into_result()?;
    Ok(exit::code_of(&profile.data))
}

/// Writes a profile to all outputs, those of a single event with this one, and its summary to standard error.
pub(super) fn write_event(
    profile: &ShapedProfile<'_>,
    event: EventId,
    outputs: Outputs,
    common: &CommonArguments,
) -> WrittenOutputs {
    let hint = outputs.hint();
    let has_findings = !outputs.has_table_on_terminal();
    let view = if outputs.has_views() { profile.view() } else { Cow::Borrowed(&*profile.data) };
    let written = outputs.write(&profile.data, &view, event);
    if !common.quiet {
        let contents = Contents { is_verbose: common.verbose > 0, has_findings };
        print_messages(&summary::text(&profile.data, &view, contents));
        if let Some(hint) = hint {
            print_message(hint);
        }
    }
    written
}
