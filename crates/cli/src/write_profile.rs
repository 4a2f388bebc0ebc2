//! Writes a profile to all outputs, and its summary to standard error.

use std::borrow::Cow;

use anyhow::Result;
use profiler_profile::{EventId, Profile};

use super::{
    arguments::CommonArguments,
    exit,
    outputs::{Outputs, WrittenOutputs},
    shape::ShapeArguments,
    standard_streams::{print_message, print_messages},
    summary::{self, Contents},
};

/// Writes a profile to all outputs and its summary to standard error, and returns the exit code.
pub(super) fn write(
    profile: &Profile,
    shape: &ShapeArguments,
    outputs: Outputs,
    common: &CommonArguments,
) -> Result<u8> {
    write_event(profile, shape, shape.event(profile)?, outputs, common).into_result()?;
    Ok(exit::code_of(profile))
}

/// Writes a profile to all outputs, those of a single event with this one, and its summary to standard error.
pub(super) fn write_event(
    profile: &Profile,
    shape: &ShapeArguments,
    event: EventId,
    outputs: Outputs,
    common: &CommonArguments,
) -> WrittenOutputs {
    let hint = outputs.hint();
    let has_findings = !outputs.has_table_on_terminal();
    let view = if outputs.has_views() { shape.view(profile) } else { Cow::Borrowed(profile) };
    let written = outputs.write(profile, &view, event);
    if !common.quiet {
        let contents = Contents { is_verbose: common.verbose > 0, has_findings };
        print_messages(&summary::text(profile, &view, contents));
        if let Some(hint) = hint {
            print_message(hint);
        }
    }
    written
}
