//! `profiler list`: the events of this machine, with their fields, and the static probes of a file.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Result, bail};
use profiler::{AvailableEvent, available_events, static_probes};

use super::standard_streams::write_result;

/// Prints the events whose name contains the pattern; for `usdt:FILE`, the static probes of the file.
pub(super) fn run(pattern: Option<&str>) -> Result<()> {
    let events = match pattern.and_then(|pattern| pattern.strip_prefix("usdt:")) {
        Some(file) => static_probes(Path::new(file))?,
        None => available_events_with(pattern.unwrap_or_default()),
    };
    if events.is_empty() {
        bail!(nothing_found(pattern.unwrap_or_default()));
    }
    write_result(|to| print(&events, to))
}

/// The message if no event fits the pattern.
fn nothing_found(pattern: &str) -> String {
    match pattern.strip_prefix("usdt:") {
        Some(file) => format!("`{file}` has no static probes"),
        None => format!("no event of this machine has `{pattern}` in its name: `profiler list` shows all"),
    }
}

fn print(events: &[AvailableEvent], to: &mut dyn Write) -> io::Result<()> {
    events.iter().try_for_each(|event| writeln!(to, "{}", line(event)))
}

/// The events of this machine whose name contains a text.
fn available_events_with(text: &str) -> Vec<AvailableEvent> {
    let mut events = available_events();
    events.retain(|event| event.name.contains(text));
    events
}

/// An event in one line: `tracepoint:sched_switch  preempt: bool, prev: struct task_struct *`.
fn line(event: &AvailableEvent) -> String {
    let fields: Vec<_> =
        event.fields.iter().map(|(name, type_name)| format!("{name}: {type_name}")).collect();
    if fields.is_empty() { event.name.clone() } else { format!("{}  {}", event.name, fields.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields() {
        let field = |name: &str, type_name: &str| (name.to_owned(), type_name.to_owned());
        let fields = vec![field("id", "long int"), field("regs", "struct pt_regs *")];
        let event = AvailableEvent { name: "tracepoint:sys_enter".to_owned(), fields };
        assert_eq!(line(&event), "tracepoint:sys_enter  id: long int, regs: struct pt_regs *");
    }

    #[test]
    fn a_pattern_selects_by_the_name() {
        let mut listed = Vec::new();
        print(&available_events_with("faults"), &mut listed).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.lines().any(|line| line == "page-faults"), "{listed}");
        assert!(listed.lines().all(|line| line.contains("faults")), "{listed}");
    }
}
