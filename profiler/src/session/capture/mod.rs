//! Captures of a session: records one, and replays one.

mod recorder;
mod replay;

#[cfg(fuzzing)]
pub(crate) use self::replay::replay_in_this_thread;
pub(super) use self::{recorder::SessionRecorder, replay::replay};
