//! Rights of a thread: capabilities (capabilities(7)) and the user id that file permissions are checked for (setfsuid(2)).
//!
//! Threads inherit both. A thread with the user id of an unprivileged user and without `CAP_DAC_OVERRIDE`, but with
//! `CAP_DAC_READ_SEARCH`, can read every file, and write those that every user may write.

use std::io;

use profiler_sampler::{EventSource, sysctl};

use rustix::{
    process::geteuid,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

use crate::{
    doctor::situation::PARANOID_NEEDS_ADMIN, kernel_release::KernelRelease, settings::Settings,
    sys::user::set_file_user,
};

/// `kernel.overflowuid`: the user that owns nothing.
const UNPRIVILEGED_USER: u32 = 65534;

/// Writing files of other users and giving them away, as outputs to the caller of sudo.
const WRITING: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::CHOWN).union(CapabilitySet::FOWNER);

/// What reading recordings and writing outputs needs.
pub(super) const OF_FILES: CapabilitySet = WRITING.union(CapabilitySet::DAC_READ_SEARCH);

/// What sampling needs, beside the files: BPF, perf events and their buffers, and the inspection of processes. Resource limits
/// are raised before.
const OF_SAMPLING: CapabilitySet = SPLIT_FROM_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK);

/// What kernels before 5.9 allow to `CAP_SYS_ADMIN` alone.
const SPLIT_FROM_ADMIN: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(CapabilitySet::CHECKPOINT_RESTORE);

/// From this version on, one BPF link attaches a program to all places of a probe (`BPF_TRACE_UPROBE_MULTI`).
const FIRST_WITH_PROBE_LINKS: KernelRelease = KernelRelease { major: 6, minor: 6 };

/// The capabilities that a session with these settings can need.
pub(super) fn of_session(settings: &Settings) -> CapabilitySet {
    let mut needed = OF_SAMPLING | OF_FILES;
    if settings.stacks.kernel {
        // For the addresses of the kernel's symbols.
        needed |= CapabilitySet::SYSLOG;
    }
    if settings.target.is_command() {
        // For signals to a command of another user.
        needed |= CapabilitySet::KILL;
    }
    if needs_admin() || attaches_probes_as_perf_events(settings) {
        needed |= CapabilitySet::SYS_ADMIN;
    }
    needed
}

/// Whether probes are attached as perf events, which the kernel allows to `CAP_SYS_ADMIN` alone: `perf_uprobe_event_init`,
/// `kernel/events/core.c`, since a change of Linux 6.17 that stable kernels have as well.
fn attaches_probes_as_perf_events(settings: &Settings) -> bool {
    let is_probe =
        |source: &EventSource| matches!(source, EventSource::Probe(_) | EventSource::StaticProbe(_));
    let has_probes = settings.events.counted.iter().any(|event| is_probe(event.source()));
    has_probes && KernelRelease::current() < FIRST_WITH_PROBE_LINKS
}

fn needs_admin() -> bool {
    let has_others = capabilities(None).is_ok_and(|sets| sets.permitted.contains(SPLIT_FROM_ADMIN));
    let is_paranoid = sysctl("perf_event_paranoid").is_some_and(|level| level >= PARANOID_NEEDS_ADMIN);
    !has_others || is_paranoid
}

/// Drops all other capabilities of the calling thread. Unless it `writes_files`, it can write no file of another user until
/// [`restore_file_rights`].
pub(super) fn reduce(needed: CapabilitySet, writes_files: bool) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let mut effective = effective & needed;
    if !writes_files {
        effective -= WRITING;
        let has_changed = set_file_user(UNPRIVILEGED_USER);
        log::debug!("files are accessed as user {UNPRIVILEGED_USER}: {has_changed}");
    }
    let (permitted, inheritable) = (permitted & needed, inheritable & needed);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    Ok(())
}

/// Lets the calling thread write files again, after a session in a sandbox was started in it.
///
/// # Errors
/// The kernel refuses capabilities of the permitted set: it never does.
pub fn restore_file_rights() -> io::Result<()> {
    set_file_user(geteuid().as_raw());
    let mut sets = capabilities(None)?;
    sets.effective |= sets.permitted & OF_FILES;
    set_capabilities(None, sets)?;
    Ok(())
}
