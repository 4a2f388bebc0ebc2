//! The entry point of the fuzz target for replays of captures. Built with `--cfg fuzzing` only.

use std::path::Path;

use profiler_profile::Profile;

use crate::{Builder, error::Result, session::capture::replay_in_this_thread};

/// Replays the capture in `directory` in the calling thread.
pub fn replay(builder: Builder, directory: &Path) -> Result<Profile> {
    profiler_blocking::run_in_this_thread();
    replay_in_this_thread(&builder.replay(directory).build()?.settings, directory)
}
