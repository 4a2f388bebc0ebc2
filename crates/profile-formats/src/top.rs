//! Tables for a terminal: the hottest functions, or what threads wait for and where, and the heaviest call paths.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::{self, BufWriter, Write},
};

use super::{
    OutputOptions, label,
    short_name::{fitting_function, fitting_name},
    table::{fit_path, wrapped},
    title,
    wait_table::{WaitPath, WaitTable},
};
use profiler_profile::{EventId, Profile, sum};

/// Rows of each table.
const FUNCTIONS: usize = 20;
const PATHS: usize = 10;

/// Columns before the name of a function and before a path.
const FUNCTION_INDENT: usize = 20;
const PATH_INDENT: usize = 10;

/// The heading of the column that says what threads wait for, and the columns between it and the next one.
const WAITS_FOR: &str = "waits for";
const GAP_COLUMNS: usize = 2;

/// In place of the method of a wait whose stack was not captured.
const NO_STACK: &str = "[no stack]";

/// Writes the tables of a profile with one event, as it is shown.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let width = options.width();
    let heading = [title::title(profile), title::subtitle(profile)];
    for line in heading.iter().flat_map(|line| wrapped(&label::clean(line), width)) {
        writeln!(to, "{line}")?;
    }
    write_states(profile, &mut to)?;
    if profile.total_value() > 0 {
        match WaitTable::of(profile) {
            Some(waits) => write_waits(profile, &waits, width, &mut to)?,
            None => write_functions(profile, width, &mut to)?,
        }
    }
    let findings = title::findings(profile);
    if !findings.is_empty() {
        writeln!(to, "\nfindings")?;
        findings.iter().try_for_each(|finding| writeln!(to, "{finding}"))?;
    }
    to.flush()
}

/// Writes what threads wait for in which methods of the program, and the callers of these.
fn write_waits(
    profile: &Profile,
    waits: &WaitTable<'_>,
    width: usize,
    to: &mut impl Write,
) -> io::Result<()> {
    let total = profile.total_value();
    let rows = waits.methods.iter().take(FUNCTIONS);
    let rows: Vec<_> = rows.map(|((activity, method), value)| (activity.text(), *method, *value)).collect();
    let column = rows.iter().map(|(activity, ..)| activity.len()).fold(WAITS_FOR.len(), usize::max);
    let indent = PATH_INDENT + column + GAP_COLUMNS;
    writeln!(to, "\n   share  {WAITS_FOR:column$}  in")?;
    for (activity, method, value) in rows {
        let method = method.map_or(Cow::Borrowed(NO_STACK), label::name);
        let method = fitting_name(&method, width.saturating_sub(indent));
        writeln!(to, "{:>6.2} %  {activity:column$}  {method}", percent(value, total))?;
    }
    let paths = waits.paths.iter().take(PATHS).map(|(WaitPath { comm, functions, activity }, value)| {
        let names = std::iter::once(comm).chain(functions.iter().rev());
        let path = names.map(|id| label::name(profile.string(*id)).into_owned()).collect();
        (path, format!(" ({})", activity.text()), *value)
    });
    write_paths(paths, total, width, to)
}

/// Writes the hottest functions and the heaviest call paths.
fn write_functions(profile: &Profile, width: usize, to: &mut impl Write) -> io::Result<()> {
    let total = profile.total_value();
    writeln!(to, "\n    self     total  function")?;
    for function in profile.functions().iter().filter(|function| function.self_count > 0).take(FUNCTIONS) {
        let [own, of_all] = [function.self_count, function.total_count].map(|count| percent(count, total));
        let (name, module) =
            (label::name(profile.string(function.name)), profile.module_name(function.module));
        let function = fitting_function(&name, module, width.saturating_sub(FUNCTION_INDENT));
        writeln!(to, "{own:>6.2} %  {of_all:>6.2} %  {function}")?;
    }
    let paths = paths(profile).into_iter().map(|(path, value)| (path, String::new(), value));
    write_paths(paths, total, width, to)
}

/// Writes call paths, root first, each with what follows it and its value.
fn write_paths(
    mut paths: impl Iterator<Item = (Vec<String>, String, u64)>,
    total: u64,
    width: usize,
    to: &mut impl Write,
) -> io::Result<()> {
    writeln!(to, "\n   share  call path")?;
    paths.try_for_each(|(path, activity, value)| {
        let path = fit_path(&path, width.saturating_sub(PATH_INDENT + activity.len()));
        writeln!(to, "{:>6.2} %  {path}{activity}", percent(value, total))
    })
}

/// Writes the share of each state, if the samples have states.
fn write_states(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    let (states, total) = (profile.values_by_state(EventId::FIRST), profile.total_value());
    if !states.is_empty() {
        writeln!(to, "\n   share  state")?;
    }
    states.iter().try_for_each(|(state, value)| writeln!(to, "{:>6.2} %  {state}", percent(*value, total)))
}

/// The heaviest call paths by function names, root first.
fn paths(profile: &Profile) -> Vec<(Vec<String>, u64)> {
    let mut counts = HashMap::<_, u64>::new();
    for sample in profile.samples() {
        let comm = profile.process(profile.thread(sample.thread).process).comm;
        sum::add(counts.entry((comm, sample.stack)).or_default(), sample.value);
    }
    // Paths that differ in addresses only are one.
    let mut paths = HashMap::<Vec<_>, u64>::new();
    for ((comm, stack), count) in counts {
        let frames = profile.stack(stack).frames.iter().rev().map(|frame| profile.frame(*frame).name);
        sum::add(paths.entry(std::iter::once(comm).chain(frames).collect()).or_default(), count);
    }
    let mut paths: Vec<_> = paths.into_iter().collect();
    paths.sort_unstable_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then_with(|| a.cmp(b)));
    paths.truncate(PATHS);
    let text = |id| label::name(profile.string(id)).into_owned();
    paths.into_iter().map(|(path, count)| (path.into_iter().map(text).collect(), count)).collect()
}

fn percent(count: u64, total: u64) -> f64 {
    100.0 * count as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::{
        Event, Header, ProfileBuilder, Sample, Sampling, StackEnd, ThreadState,
        test_profile::{self, folded},
    };

    fn text(profile: &Profile, width_columns: Option<u16>) -> String {
        let mut bytes = Vec::new();
        let options = OutputOptions { width_columns, ..OutputOptions::default() };
        crate::Format::Top.write_with(profile, &options, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn findings_are_the_last_lines() {
        let table = text(&test_profile::with_finding(), None);
        assert!(table.ends_with(&format!("\nfindings\n{}\n", test_profile::FINDING)), "{table}");
    }

    #[test]
    fn the_share_of_each_state_is_shown() {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        let process = builder.process(1, "p");
        let thread = builder.thread(process, 1, "p");
        for (value, state) in [(1, ThreadState::OnCpu), (3, ThreadState::Blocked)] {
            let state = Some(state);
            builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
        }
        let table = text(&builder.finish(Header::default()), None);
        assert!(
            table.contains("\n   share  state\n 25.00 %  on CPU\n 75.00 %  blocked\n\n   share  waits for"),
            "{table}"
        );
        assert!(!text(&folded(&[("p;main", 1)]), None).contains("state"));
    }

    #[test]
    fn a_wait_has_its_cause_the_method_of_the_program_and_its_callers() {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let process = builder.process(1, "shop");
        let thread = builder.thread(process, 1, "shop");
        let stacks = [
            ("main;serve;update;pthread_mutex_lock", 60, ThreadState::Blocked),
            ("main;serve;update;pthread_mutex_lock;__lll_lock_wait", 28, ThreadState::Blocked),
            ("main;serve;update;compute", 12, ThreadState::OnCpu),
        ];
        for (folded, value, state) in stacks {
            let frames = folded.split(';').rev().map(|name| test_profile::function(&mut builder, name, 0));
            let frames = frames.collect();
            let stack = builder.stack(frames, StackEnd::Root);
            let state = Some(state);
            builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
        }
        let table = text(&builder.finish(Header::default()), None);
        let rows = "\n   share  waits for  in\n 88.00 %  lock       update\n 12.00 %  on CPU     compute\n\n   \
                    share  call path\n 88.00 %  shop > main > serve > update (lock)\n 12.00 %  shop > main > serve > \
                    update > compute (on CPU)\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn a_wait_without_a_stack_is_a_row() {
        let mut builder = ProfileBuilder::default();
        let event = builder
            .event(Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 1_000_000 } });
        let process = builder.process(1, "shop");
        let thread = builder.thread(process, 1, "shop");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let state = Some(ThreadState::Runnable);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 5 });
        let table = text(&builder.finish(Header::default()), None);
        let rows = "100.00 %  run queue  [no stack]\n\n   share  call path\n100.00 %  shop (run queue)\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn functions_and_paths_are_ordered_by_samples() {
        let profile = folded(&[("p;main;work", 60), ("p;main;work;read", 30), ("p;main", 10)]);
        let text = text(&profile, None);
        let rows = "\n    self     total  function\n 60.00 %   90.00 %  work\n 30.00 %   30.00 %  read\n \
                    10.00 %  100.00 %  main\n\n   share  call path\n 60.00 %  p > main > work\n \
                    30.00 %  p > main > work > read\n 10.00 %  p > main\n";
        assert!(text.ends_with(rows), "{text}");
    }

    #[test]
    fn no_line_exceeds_the_terminal_and_names_are_escaped() {
        let long = format!("p;main;{}\u{1b}[31m\u{202e};leaf", "x".repeat(300));
        let profile = folded(&[(&long, 60), ("p;main;idle", 30)]);
        for width in [1, 20, 40, 80] {
            let text = text(&profile, Some(width));
            let fits = |line: &str| {
                line.chars().count() <= usize::from(width).max("    self     total  function".len())
            };
            assert!(text.lines().all(fits), "{width}: {text}");
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        }
    }

    #[test]
    fn a_function_is_shown_with_its_module() {
        assert_eq!(label::with_module("malloc", "libc.so.6"), "malloc (libc.so.6)");
        assert_eq!(label::with_module("read", "[kernel]"), "read (kernel)");
        assert_eq!(label::with_module("System.Net!A.B()", "System.Net.dll"), "System.Net!A.B()");
        assert_eq!(label::with_module("[libc.so.6+0x1]", "libc.so.6"), "[libc.so.6+0x1]");
        assert_eq!(label::with_module("f", ""), "f");
    }

    #[test]
    fn a_profile_without_samples_is_a_heading() {
        let text = text(&ProfileBuilder::default().finish(Header::default()), None);
        assert!(text.contains("0 samples") && !text.contains("function"), "{text}");
    }
}
