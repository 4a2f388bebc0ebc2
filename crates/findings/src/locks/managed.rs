//! Names the managed threads that own locks, as the memory of their process has shown them.

use profiler_profile::{ManagedThread, ProcessId, Profile};

/// The most characters of the name of a thread in a text. The fields of a finding have the whole name.
const MAX_NAME_CHARS: usize = 64;

/// A managed thread that owns a lock, at the last reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagedOwner<'a> {
    profile: &'a Profile,
    reading: &'a ManagedThread,
}

impl<'a> ManagedOwner<'a> {
    /// The last reading of a thread of a process up to a time; `None` where it owned no lock of a .NET runtime.
    pub(crate) fn find(profile: &'a Profile, process: ProcessId, tid: u32, time_ns: u64) -> Option<Self> {
        let reading = profile.managed_thread_at(process, tid, time_ns)?;
        Some(Self { profile, reading })
    }

    /// The thread as text: `17 "price computation" (managed 5)`, `17 (worker, managed 5)` without a name of its own.
    pub(crate) fn label(&self) -> String {
        let thread = self.profile.thread(self.reading.thread);
        let (tid, id) = (thread.tid, self.reading.managed_id);
        match self.reading.name {
            Some(name) => format!("{tid} \"{}\" (managed {id})", shortened(self.profile.string(name))),
            None => format!("{tid} ({}, managed {id})", self.profile.string(thread.comm)),
        }
    }

    /// The exception that it throws or handles, as a clause behind what it does; empty without one.
    pub(crate) fn exception_clause(&self) -> String {
        let exception = self.reading.exception.map(|exception| self.profile.string(exception));
        exception.map(|name| format!(", throws or handles {}", shortened(name))).unwrap_or_default()
    }
}

/// The first characters of a name, with a mark where more follow.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
        None => name.to_owned(),
    }
}
