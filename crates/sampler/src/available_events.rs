//! The events that this machine can sample.

use crate::{
    counted_event::{DURATION, HARDWARE, SOFTWARE},
    ebpf::KernelTypes,
    sys::perf,
    system_calls,
};

/// An event that this machine can sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableEvent {
    /// The name, for [`CountedEvent`](crate::CountedEvent).
    pub name: String,
    /// The names and the types of its fields, as in C.
    pub fields: Vec<(String, String)>,
}

/// Lists the software events, the hardware events if there is a PMU, the tracepoints if the kernel has types (BTF), and the system
/// calls. The subsystem of a tracepoint is not known: its name starts with `tracepoint:`.
#[must_use]
pub fn available_events() -> Vec<AvailableEvent> {
    let hardware = if perf::has_cycle_counter() { HARDWARE } else { &[] };
    let named = SOFTWARE.iter().chain(hardware);
    let mut events: Vec<_> =
        named.map(|(name, _)| AvailableEvent { name: (*name).to_owned(), fields: Vec::new() }).collect();
    let types = KernelTypes::default();
    if let Some(types) = types.btf() {
        let mut tracepoints: Vec<_> = types
            .tracepoints()
            .map(|(name, mut fields)| {
                if name == "sys_exit" {
                    fields.push(duration());
                }
                AvailableEvent { name: format!("tracepoint:{name}"), fields }
            })
            .collect();
        tracepoints.sort_by(|a, b| a.name.cmp(&b.name));
        events.extend(tracepoints);
    }
    events.extend(system_calls::names().flat_map(system_call_events));
    events
}

/// The field of the exits of system calls that no argument has.
fn duration() -> (String, String) {
    (DURATION.to_owned(), "nanoseconds".to_owned())
}

/// The entry and the exit of a system call.
fn system_call_events(name: &str) -> [AvailableEvent; 2] {
    let number = |field: &str| (field.to_owned(), "long int".to_owned());
    let entry: Vec<_> = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"].map(number).into();
    let exit = entry.iter().cloned().chain([number("ret"), duration()]).collect();
    [
        AvailableEvent { name: format!("syscalls:sys_enter_{name}"), fields: entry },
        AvailableEvent { name: format!("syscalls:sys_exit_{name}"), fields: exit },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted_event::CountedEvent;

    #[test]
    fn every_event_that_is_listed_can_be_named() {
        let events = available_events();
        for known in ["page-faults", "syscalls:sys_exit_read"] {
            assert!(events.iter().any(|event| event.name == known), "{known}");
        }
        for event in events {
            assert!(event.name.parse::<CountedEvent>().is_ok(), "{}", event.name);
        }
    }
}
