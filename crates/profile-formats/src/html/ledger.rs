//! The ledger as tables of text.

use serde::Serialize;

use crate::label;
use profiler_profile::{EventLedger, FoundBy, Ledger, TimerTicks, sum};

/// A table of the ledger.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

/// A row: description, amount, share of the whole, remedy.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    what: String,
    amount: Amount,
    share: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Amount {
    Count(u64),
    Text(String),
}

/// Rows for unsymbolized modules; the remaining ones share a row.
const MAX_UNSYMBOLIZED_ROWS: usize = 20;

/// All tables of an event and of the session that are not empty.
///
/// `has_samples`: the ledgers of all events have numbers of samples, and none has sums.
pub(super) fn sections(event: &EventLedger, session: &Ledger, has_samples: bool) -> Vec<Section> {
    let sections = [
        Section { title: "Samples", rows: samples(event, &session.timer) },
        Section { title: "Stacks", rows: stacks(event) },
        Section { title: "How user code's callers were found", rows: callers(event) },
        Section { title: "Symbolized frames, by source of the symbol", rows: symbolized(event) },
        Section { title: "Unsymbolized frames, by reason", rows: unsymbolized(event) },
        Section { title: "Other losses", rows: other_losses(session) },
        Section { title: "What the profiler cost", rows: cost(session, has_samples) },
    ];
    sections.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn samples(ledger: &EventLedger, timer: &TimerTicks) -> Vec<Row> {
    let of = ledger.due;
    let mut rows = vec![
        Row::of("ticks of the timer that hit the target", of, of),
        Row::of("samples in this profile", ledger.reported, of),
    ];
    if ledger.idle > 0 {
        rows.push(Row::of("samples of idle threads among them", ledger.idle, of));
    }
    rows.extend(ledger.lost.iter().map(|(loss, count)| Row::of(format!("lost, {loss}"), *count, of)));
    if !ledger.adds_up() {
        let found = ledger.reported.saturating_add(ledger.lost_total());
        rows.push(Row::of("not accounted for", of.abs_diff(found), of));
    }
    let TimerTicks { due, missed } = timer;
    rows.extend(
        missed.iter().map(|(cause, count)| Row::of(format!("missed on all CPUs, {cause}"), *count, *due)),
    );
    rows
}

fn stacks(ledger: &EventLedger) -> Vec<Row> {
    ledger.stacks.iter().map(|(end, count)| Row::of(end.to_string(), *count, ledger.reported)).collect()
}

fn callers(ledger: &EventLedger) -> Vec<Row> {
    let ways = [
        (FoundBy::Cfi, "by CFI"),
        (FoundBy::Instructions, "by instructions"),
        (FoundBy::FramePointer, "by frame pointer"),
        (FoundBy::EpilogueScan, "by epilogue scan"),
        (FoundBy::SignalFrame, "in a signal frame"),
        (FoundBy::CallInstruction, "by call instruction"),
    ];
    let found = |way| ledger.found_by.get(&way).copied().unwrap_or_default();
    let total = sum::of(ways.iter().map(|(way, _)| found(*way)));
    let used = ways.into_iter().filter(|(way, _)| found(*way) > 0);
    used.map(|(way, what)| Row::of(what, found(way), total)).collect()
}

fn symbolized(ledger: &EventLedger) -> Vec<Row> {
    let frames = all_frames(ledger);
    ledger.symbolized.iter().map(|(source, count)| Row::of(source.to_string(), *count, frames)).collect()
}

fn unsymbolized(ledger: &EventLedger) -> Vec<Row> {
    let frames = all_frames(ledger);
    let mut groups: Vec<_> = ledger.unsymbolized.iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rest = groups.split_off(groups.len().min(MAX_UNSYMBOLIZED_ROWS));
    let mut rows: Vec<Row> = groups
        .into_iter()
        .map(|(group, count)| {
            let place = if group.module.is_empty() { "" } else { " in " };
            let what = format!("{}{place}{}", group.reason, label::printable(&group.module));
            let remedy = group.remedy().map(|remedy| label::printable(&remedy.to_string()).into_owned());
            Row { remedy, ..Row::of(what, *count, frames) }
        })
        .collect();
    if !rest.is_empty() {
        let count = sum::of(rest.iter().map(|(_, count)| **count));
        rows.push(Row::of(format!("{} other modules and reasons", rest.len()), count, frames));
    }
    rows
}

fn all_frames(ledger: &EventLedger) -> u64 {
    ledger.symbolized_total().saturating_add(ledger.unsymbolized_total())
}

fn other_losses(ledger: &Ledger) -> Vec<Row> {
    let counts = [
        (
            "sideband events (mmap, fork, exec) lost: frames of short-lived processes can be unsymbolized",
            ledger.lost_process_events,
        ),
        ("sideband events that were applied too late", ledger.late_process_events),
        ("child processes that were not sampled: too many target processes", ledger.lost_children),
        ("malformed perf map lines, jitdump records and EventPipe events", ledger.malformed_jit_entries),
        (
            "EventPipe events dropped by the runtime: some JIT frames can be unsymbolized",
            ledger.dropped_runtime_events,
        ),
    ];
    let counted = counts.into_iter().filter(|(_, count)| *count > 0);
    let counted = counted.map(|(what, count)| Row::plain(what, Amount::Count(count)));
    let sessions = ledger.event_sessions.iter().map(|(cause, processes)| {
        let what = format!("processes whose .NET runtime was asked for the events of its methods: {cause}");
        Row::plain(&what, Amount::Count(*processes))
    });
    counted.chain(sessions).collect()
}

fn cost(ledger: &Ledger, has_samples: bool) -> Vec<Row> {
    const NS_PER_S: f64 = 1e9;
    const NS_PER_US: f64 = 1e3;
    const BYTES_PER_MB: f64 = 1e6;
    let cost = &ledger.cost;
    let seconds = |ns: u64| Amount::Text(format!("{:.2} s", ns as f64 / NS_PER_S));
    let peak_memory = format!("{:.1} MB", cost.peak_memory_bytes as f64 / BYTES_PER_MB);
    let mut rows = vec![
        Row::plain("CPU time in user space", seconds(cost.user_cpu_ns)),
        Row::plain("CPU time in the kernel", seconds(cost.system_cpu_ns)),
        Row::plain("peak memory", Amount::Text(peak_memory)),
    ];
    let reported = sum::of(ledger.events.iter().map(|event| event.reported));
    if reported > 0 && has_samples {
        let each_us = cost.bpf_run_time_ns as f64 / reported as f64 / NS_PER_US;
        rows.push(Row::plain("in the kernel for each sample", Amount::Text(format!("{each_us:.1} us"))));
    }
    rows
}

impl Row {
    fn of(what: impl Into<String>, count: u64, of: u64) -> Self {
        let share = format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64);
        Self { what: what.into(), amount: Amount::Count(count), share, remedy: None }
    }

    fn plain(what: &str, amount: Amount) -> Self {
        Self { what: what.to_owned(), amount, share: String::new(), remedy: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::{Loss, Reason, UnsymbolizedFrames};

    fn rows_of(event: &EventLedger, session: &Ledger, title: &str) -> Vec<Row> {
        let section = sections(event, session, true).into_iter().find(|section| section.title == title);
        section.map(|section| section.rows).unwrap_or_default()
    }

    fn rows(event: &EventLedger, title: &str) -> Vec<Row> {
        rows_of(event, &Ledger::default(), title)
    }

    fn row(what: &str, count: u64, share: &str) -> Row {
        Row { what: what.to_owned(), amount: Amount::Count(count), share: share.to_owned(), remedy: None }
    }

    #[test]
    fn every_tick_is_a_sample_or_a_counted_loss() {
        let mut ledger = EventLedger { due: 200, reported: 150, ..EventLedger::default() };
        ledger.lost.insert(Loss::NoThreadId, 40);
        let expected = [
            row("ticks of the timer that hit the target", 200, "100.0 %"),
            row("samples in this profile", 150, "75.0 %"),
            row("lost, task invisible in this pid namespace", 40, "20.0 %"),
            row("not accounted for", 10, "5.0 %"),
        ];
        assert_eq!(rows(&ledger, "Samples"), expected);
    }

    #[test]
    fn samples_of_idle_threads_are_counted_where_there_are_any() {
        let mut ledger = EventLedger { due: 4, reported: 4, ..EventLedger::default() };
        assert_eq!(rows(&ledger, "Samples").len(), 2);
        ledger.idle = 3;
        assert_eq!(rows(&ledger, "Samples")[2], row("samples of idle threads among them", 3, "75.0 %"));
    }

    #[test]
    fn the_largest_modules_have_rows_and_the_rest_is_counted() {
        let mut ledger = EventLedger::default();
        for count in 1..=25 {
            let module = format!("[lib\u{202e}{count}]");
            ledger.unsymbolized.insert(UnsymbolizedFrames { module, reason: Reason::NoSymbols }, count);
        }
        let rows = rows(&ledger, "Unsymbolized frames, by reason");
        assert_eq!(rows.len(), MAX_UNSYMBOLIZED_ROWS + 1);
        assert_eq!(rows[0], row("no symbols in [lib 25]", 25, "7.7 %"));
        assert_eq!(rows[MAX_UNSYMBOLIZED_ROWS], row("5 other modules and reasons", 15, "4.6 %"));
    }

    #[test]
    fn unsymbolized_modules_have_a_remedy() {
        let module = "/rt/lib\u{202e}clr.so".to_owned();
        let group = UnsymbolizedFrames { module, reason: Reason::NoSymbols };
        let ledger = EventLedger { unsymbolized: [(group.clone(), 1)].into(), ..EventLedger::default() };
        let found = rows(&ledger, "Unsymbolized frames, by reason").remove(0).remedy.unwrap();
        assert_eq!(found, group.remedy().unwrap().to_string().replace('\u{202e}', " "));
        assert!(found.starts_with("put its debug file lib clr.so.dbg beside it"), "{found}");
    }

    #[test]
    fn frames_are_counted_by_unwinding_method() {
        let found_by = [
            (FoundBy::Sample, 7),
            (FoundBy::Cfi, 1),
            (FoundBy::EpilogueScan, 3),
            (FoundBy::CallInstruction, 4),
        ]
        .into();
        let expected = [
            row("by CFI", 1, "12.5 %"),
            row("by epilogue scan", 3, "37.5 %"),
            row("by call instruction", 4, "50.0 %"),
        ];
        let ledger = EventLedger { found_by, ..EventLedger::default() };
        assert_eq!(rows(&ledger, "How user code's callers were found"), expected);
    }

    #[test]
    fn empty_tables_are_left_out() {
        let event = EventLedger::default();
        assert_eq!(rows(&event, "Other losses"), []);
        let ledger = Ledger { lost_children: 3, ..Ledger::default() };
        let expected = row("child processes that were not sampled: too many target processes", 3, "");
        assert_eq!(rows_of(&event, &ledger, "Other losses"), [expected]);
    }
}
