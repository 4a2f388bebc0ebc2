//! The entries of threads into system calls, from which events measure the durations of calls.

use std::{
    collections::HashMap,
    ffi::CStr,
    os::fd::{AsFd, OwnedFd},
};

use profiler_common::{
    Config, TargetFilter, names,
    system_call::{BEGUN_BEFORE, SystemCallEntry},
};
use profiler_processes::monotonic_time;
use zerocopy::IntoBytes;

use super::object::{clone_fd, load_program, map};
use crate::{
    error::{Error, Operation, Result},
    sys::{
        bpf::{self, ProgramType},
        bpf_link,
    },
};

/// The programs that keep the entries, loaded.
#[derive(Debug)]
pub(super) struct SystemCallEntries {
    programs: Vec<(OwnedFd, &'static CStr)>,
    entries: OwnedFd,
    /// Whether a thread of the target without an entry is in a call that began before the start, or new.
    are_complete: bool,
}

impl SystemCallEntries {
    /// Loads the programs from an object with the constants of a session.
    pub(super) fn load(
        object: &aya_obj::Object,
        config: &Config,
        maps: &HashMap<String, OwnedFd>,
    ) -> Result<Self> {
        const PROGRAMS: [(&str, &CStr); 2] = [
            (names::PROGRAM_SYSTEM_CALL_THREAD_EXIT, c"sched_process_exit"),
            (names::PROGRAM_SYSTEM_CALL_ENTER, c"sys_enter"),
        ];
        let load = |(program, tracepoint)| {
            Ok((load_program(object, program, ProgramType::RawTracepoint)?, tracepoint))
        };
        let programs = PROGRAMS.into_iter().map(load).collect::<Result<_>>()?;
        // A thread can be moved into a cgroup within a call.
        let is_cgroup =
            [TargetFilter::CgroupV1 as u32, TargetFilter::CgroupV2 as u32].contains(&config.filter);
        let are_complete = !is_cgroup && config.event.thread_start_time != 0;
        Ok(Self { programs, entries: clone_fd(map(maps, names::MAP_SYSTEM_CALLS)?)?, are_complete })
    }

    /// Attaches the programs, before those that measure durations. Closing the results detaches them.
    pub(super) fn start(&self) -> Result<Vec<OwnedFd>> {
        let attach = |(program, tracepoint): &(OwnedFd, &CStr)| {
            bpf_link::open_raw_tracepoint(tracepoint, program.as_fd()).map_err(|error| {
                let message = format!("failed to attach to `{}`", tracepoint.to_string_lossy());
                Error::from_io(Operation::LoadProgram, message, error)
            })
        };
        let attached = self.programs.iter().map(attach).collect::<Result<_>>()?;
        if self.are_complete {
            // From here on, each call has an entry.
            let started = SystemCallEntry { entered_ns: monotonic_time().0, ..SystemCallEntry::default() };
            let written =
                bpf::update_element(self.entries.as_fd(), &BEGUN_BEFORE.to_ne_bytes(), started.as_bytes());
            written.map_err(|error| {
                let message = "failed to write the start of sampling into a BPF map";
                Error::from_io(Operation::CreateMap, message, error)
            })?;
        }
        Ok(attached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ebpf::object::object_bytes;

    #[test]
    fn the_object_has_the_programs_and_the_map() {
        let bytes = object_bytes().unwrap();
        let object = aya_obj::Object::parse(AsRef::<[u8]>::as_ref(&bytes)).unwrap();
        for program in [names::PROGRAM_SYSTEM_CALL_ENTER, names::PROGRAM_SYSTEM_CALL_THREAD_EXIT] {
            assert!(object.programs.contains_key(program), "{program}");
        }
        assert!(object.maps.contains_key(names::MAP_SYSTEM_CALLS));
    }
}
