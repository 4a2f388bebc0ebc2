//! Folded stacks: `comm;root;...;leaf N`, the input of flame graph tools.

use std::io::{self, BufWriter, Write};

use indexmap::IndexSet;

use super::{
    OutputOptions, label,
    stack_values::{self, StackValue},
    visible,
};
use profiler_profile::{EventId, Process, Profile, Sampling, ThreadId};

/// Writes the lines, sorted by the names from the root.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let Lines { labels, stacks } = Lines::of(profile, options);
    for (stack, count) in &stacks {
        for (index, label) in texts(&labels, stack).enumerate() {
            if index > 0 {
                to.write_all(b";")?;
            }
            to.write_all(label.as_bytes())?;
        }
        writeln!(to, " {count}")?;
    }
    to.flush()
}

/// Each distinct line with its count, in output order.
pub(super) fn lines(profile: &Profile, options: &OutputOptions) -> Vec<(String, u64)> {
    Lines::of(profile, options).texts()
}

/// Each distinct line, with call paths cut where they have fewer than `min_percent` of the samples.
pub(super) fn visible_lines(
    profile: &Profile,
    options: &OutputOptions,
    min_percent: f64,
) -> Vec<(String, u64)> {
    let mut lines = Lines::of(profile, options);
    visible::cut(&mut lines.stacks, min_percent);
    lines.texts()
}

fn texts<'a>(labels: &'a [String], stack: &'a [u32]) -> impl Iterator<Item = &'a str> {
    stack.iter().filter_map(|label| labels.get(*label as usize)).map(String::as_str)
}

/// Lines as indices of labels. A line becomes text when it is written: the text of all lines can be a hundred times larger.
struct Lines {
    /// Sorted, so that indices order like names.
    labels: Vec<String>,
    /// Distinct lines, root first.
    stacks: Vec<(Box<[u32]>, u64)>,
}

impl Lines {
    fn of(profile: &Profile, options: &OutputOptions) -> Self {
        let mut labels = Labels::of(profile, options);
        let owned = stacks_by_owner(profile, options);
        let mut stacks: Vec<_> = owned.into_iter().map(|owned| (labels.line(&owned), owned.value)).collect();
        let labels = labels.sort(stacks.iter_mut().map(|(stack, _)| stack));
        stacks.sort_unstable();
        stacks.dedup_by(|next, kept| next.0 == kept.0 && merge_value(&mut kept.1, next.1));
        let unit = unit(profile);
        stacks.iter_mut().for_each(|(_, value)| *value /= unit);
        Self { labels, stacks }
    }

    fn texts(&self) -> Vec<(String, u64)> {
        let text = |stack| texts(&self.labels, stack).collect::<Vec<_>>().join(";");
        self.stacks.iter().map(|(stack, count)| (text(stack), *count)).collect()
    }
}

/// The value that is 1 in a line: a sample, or a microsecond of nanoseconds, as bcc's `offcputime -f` prints it.
fn unit(profile: &Profile) -> u64 {
    const NS_PER_US: u64 = 1_000;
    match profile.first_event().sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => NS_PER_US,
        _ => 1,
    }
}

/// The name of the unit of the numbers in lines.
pub(super) fn unit_name(profile: &Profile) -> &'static str {
    match profile.first_event().sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => "us",
        Sampling::Occurrences { .. } => "occurrences",
        Sampling::Sums { .. } => "sum",
        _ => "samples",
    }
}

/// Adds and returns true, as `dedup_by` needs it.
fn merge_value(sum: &mut u64, value: u64) -> bool {
    *sum = sum.saturating_add(value);
    true
}

/// The stacks of each group of threads whose lines have the same first frames, with the first thread of the group. A
/// stack of a hundred threads is one line unless threads are shown.
fn stacks_by_owner(profile: &Profile, options: &OutputOptions) -> Vec<StackValue> {
    let beginning = |thread: ThreadId| {
        let process = profile.thread(thread).process;
        let Process { comm, container, kubernetes, .. } = profile.process(process);
        (
            options.per_container.then_some((container, kubernetes)),
            comm,
            options.per_process.then_some(process),
            options.per_thread.then_some(thread),
        )
    };
    let state = |owned: &StackValue| options.per_state.then_some(owned.state);
    let key = |owned: &StackValue| (beginning(owned.thread), state(owned), owned.stack);
    let mut stacks = stack_values::of(profile, EventId::FIRST);
    stacks.sort_by_key(key);
    stacks.dedup_by(|next, kept| key(next) == key(kept) && merge_value(&mut kept.value, next.value));
    stacks
}

/// The distinct labels of all lines.
struct Labels<'a> {
    profile: &'a Profile,
    options: &'a OutputOptions,
    texts: IndexSet<String>,
    of_frames: Vec<u32>,
}

impl<'a> Labels<'a> {
    fn of(profile: &'a Profile, options: &'a OutputOptions) -> Self {
        let mut labels = Self { profile, options, texts: IndexSet::new(), of_frames: Vec::new() };
        for frame in profile.frame_views() {
            let mut text = String::new();
            label::push_frame(frame, options, &mut text);
            let label = labels.number(text);
            labels.of_frames.push(label);
        }
        labels
    }

    fn number(&mut self, text: String) -> u32 {
        u32::try_from(self.texts.insert_full(text).0).unwrap_or(u32::MAX)
    }

    fn line(&mut self, owned: &StackValue) -> Box<[u32]> {
        let StackValue { thread, stack, state, .. } = *owned;
        let (profile, options) = (self.profile, self.options);
        let thread = profile.thread_view(thread);
        let process = thread.process();
        let mut line = Vec::new();
        if options.per_container {
            let Process { container, kubernetes, .. } = *profile.process(process.id());
            line.push(self.number(label::container(profile, (container, kubernetes))));
        }
        line.push(self.number(label::name(process.name()).into_owned()));
        if options.per_process {
            line.push(self.number(label::process(process)));
        }
        if options.per_thread {
            line.push(self.number(label::thread(thread)));
        }
        if let Some(state) = state.filter(|_| options.per_state) {
            line.push(self.number(format!("[{state}]")));
        }
        let frames = profile.stack(stack).frames.iter().rev();
        line.extend(frames.filter_map(|frame| self.of_frames.get(frame.index())));
        line.into()
    }

    /// Sorts the labels and renumbers the lines.
    fn sort<'l>(self, lines: impl Iterator<Item = &'l mut Box<[u32]>>) -> Vec<String> {
        let mut labels: Vec<(String, usize)> =
            self.texts.into_iter().enumerate().map(|(number, text)| (text, number)).collect();
        labels.sort_unstable();
        let mut places = vec![0; labels.len()];
        for (place, (_, number)) in (0..).zip(&labels) {
            places[*number] = place;
        }
        for label in lines.flatten() {
            *label = places.get(*label as usize).copied().unwrap_or_default();
        }
        labels.into_iter().map(|(text, _)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{
        Event, Frame, FrameId, FrameKind, Header, ProfileBuilder, Sample, SourceLocation, StackEnd,
        SymbolSource, Symbolization, ThreadState,
    };

    fn frame(builder: &mut ProfileBuilder, name: &str, kind: FrameKind, address: u64) -> FrameId {
        let name = builder.string(name);
        let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
        builder.frame(Frame {
            name,
            kind,
            module: None,
            address: ElfAddress(address),
            location: None,
            symbolization,
        })
    }

    fn text(profile: &Profile, options: OutputOptions) -> String {
        let mut bytes = Vec::new();
        write(profile, &options, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn sample() -> Profile {
        let mut builder = ProfileBuilder::default();
        let main = frame(&mut builder, "main", FrameKind::Native, 1);
        let first = frame(&mut builder, "work;\u{1b}", FrameKind::Jit, 2);
        let second = frame(&mut builder, "work;\u{1b}", FrameKind::Jit, 3);
        let kernel = frame(&mut builder, "read", FrameKind::Kernel, 4);
        let stacks = [vec![first, main], vec![second, main], vec![kernel, main]]
            .map(|frames| builder.stack(frames, StackEnd::Root));
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "worker");
        for (stack, count) in stacks.into_iter().zip([1, 2, 4]) {
            builder.sample(0, 0, thread, stack, count);
        }
        builder.finish(Header::default())
    }

    #[test]
    fn lines_are_root_first_and_distinct() {
        assert_eq!(
            text(&sample(), OutputOptions::default()),
            "app;main;read 4\napp;main;work\\u{3b}\\u{1b} 3\n"
        );
    }

    #[test]
    fn kinds_processes_and_threads_are_shown_on_request() {
        let options = OutputOptions {
            annotate: true,
            per_thread: true,
            per_process: true,
            per_container: true,
            ..OutputOptions::default()
        };
        let text = text(&sample(), options);
        let first = text.lines().next().unwrap();
        assert_eq!(first, "no container;app;process 7 (app);thread 8 (worker);main;read_[k] 4");
        assert!(text.contains("work\\u{3b}\\u{1b}_[j] 3"));
    }

    #[test]
    fn containers_of_pods_have_their_names() {
        let options = OutputOptions { per_container: true, ..OutputOptions::default() };
        let folded = text(&profiler_profile::test_profile::in_pod(), options);
        assert_eq!(folded, "container 4f1c3ab99a0e (shop/web:0/app);app;main 1\n");
    }

    #[test]
    fn containers_are_shown_on_request() {
        let mut builder = ProfileBuilder::default();
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        for (pid, container) in [(1, "4f1c3ab99a0e6b7a1d5d"), (2, "4f1c3ab99a0f"), (3, "4f1c3ab99a0f")] {
            let process = builder.process(pid, "app");
            builder.set_container(process, container);
            let thread = builder.thread(process, pid, "app");
            builder.sample(0, 0, thread, stack, 1);
        }
        let profile = builder.finish(Header::default());
        let apart = OutputOptions { per_container: true, ..OutputOptions::default() };
        assert_eq!(text(&profile, apart), "container 4f1c3ab99a0e;app 1\ncontainer 4f1c3ab99a0f;app 2\n");
        assert_eq!(text(&profile, OutputOptions::default()), "app 3\n");
    }

    #[test]
    fn states_are_shown_on_request() {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let leaf = frame(&mut builder, "read", FrameKind::Native, 1);
        let stack = builder.stack(vec![leaf], StackEnd::Root);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for (state, value) in [(ThreadState::Disk, 2), (ThreadState::Blocked, 3), (ThreadState::Disk, 4)] {
            let (time_ns, state) = (0, Some(state));
            builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value });
        }
        let profile = builder.finish(Header::default());
        let apart = OutputOptions { per_state: true, ..OutputOptions::default() };
        assert_eq!(text(&profile, apart), "app;[blocked];read 3\napp;[disk];read 6\n");
        assert_eq!(text(&profile, OutputOptions::default()), "app;read 9\n");
    }

    #[test]
    fn times_are_in_microseconds() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event { name: "syscall-time".to_owned(), sampling: Sampling::Times { period: 1 } });
        let leaf = frame(&mut builder, "[read]", FrameKind::Kernel, 0);
        let stack = builder.stack(vec![leaf], StackEnd::Root);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(0, 0, thread, stack, 2_500);
        builder.sample(0, 0, thread, stack, 4_600);
        let profile = builder.finish(Header::default());
        assert_eq!(text(&profile, OutputOptions::default()), "app;[read] 7\n");
        assert_eq!(unit_name(&profile), "us");
        let subtitle = crate::title::subtitle(&profile);
        assert_eq!(subtitle, "sum of syscall-time on 0 CPUs, 0.0 s, 0.0 s, 0.0 s lost");
    }

    #[test]
    fn lines_parse_to_the_same_stacks_for_any_names() {
        let names =
            ["", " ", "a 5", "a;b", ";;", "\n1\n", "x\u{2028}y", "\r\0\t", "\u{1b}[31m", "[lib.so+0x1]"];
        let mut builder = ProfileBuilder::default();
        for (index, name) in names.iter().enumerate() {
            let address = index as u64;
            let leaf = frame(&mut builder, name, FrameKind::Native, address);
            let root = frame(&mut builder, "main", FrameKind::Native, address);
            let stack = builder.stack(vec![leaf, leaf, root], StackEnd::Root);
            let process = builder.process(1, name);
            let thread = builder.thread(process, 1, name);
            builder.sample(0, 0, thread, stack, address + 1);
        }
        let text = text(&builder.finish(Header::default()), OutputOptions::default());
        let mut total = 0_usize;
        for line in text.split_terminator('\n') {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            assert_eq!(stack.split(';').count(), 4, "{line:?}");
            assert!(!line.contains(char::is_control), "{line:?}");
            total += count.parse::<usize>().unwrap();
        }
        assert_eq!(total, (1..=names.len()).sum::<usize>());
    }

    #[test]
    fn a_location_follows_the_name() {
        let mut builder = ProfileBuilder::default();
        let (name, file) = (builder.string("f"), builder.string("/src/a.rs"));
        let frame = builder.frame(Frame {
            name,
            kind: FrameKind::Inlined,
            module: None,
            address: ElfAddress(0),
            location: Some(SourceLocation { file, line: 12 }),
            symbolization: Symbolization::Symbol(SymbolSource::Dwarf),
        });
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, 1);
        assert_eq!(text(&builder.finish(Header::default()), OutputOptions::default()), "a;f (a.rs:12) 1\n");
    }

    #[test]
    fn a_sample_without_frames_is_a_line_of_its_process() {
        let mut builder = ProfileBuilder::default();
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let process = builder.process(1, "a b");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, u64::from(u32::MAX) + 2);
        assert_eq!(text(&builder.finish(Header::default()), OutputOptions::default()), "a b 4294967297\n");
    }
}
