//! The text of `perf script`, for stackcollapse-perf.pl, FlameScope, speedscope and PerfView.

use std::io::{self, BufWriter, Write};

use super::label;
use profiler_profile::{FrameId, FrameKind, FrameView, ModuleView, Profile, Sample, Stack};

/// Writes the samples by time: a header line, the frames leaf first, an empty line.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    Script::of(profile).write(&mut to)?;
    to.flush()
}

/// The text of a profile: a header and a stack for each sample.
pub(super) struct Script<'a> {
    profile: &'a Profile,
    threads: Vec<String>,
    event: String,
    unit_ns: u64,
    frames: FrameLines,
}

impl<'a> Script<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        let threads = profile.thread_views().map(|thread| {
            let pid = thread.process().pid();
            format!("{} {pid}/{}", comm(thread.name(), pid), thread.tid())
        });
        Self {
            profile,
            threads: threads.collect(),
            event: event(profile),
            unit_ns: profile.first_event().unit_ns().unwrap_or(1),
            frames: FrameLines::of(profile),
        }
    }

    /// Writes the whole text in small parts.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut head = Vec::new();
        for sample in self.profile.samples() {
            self.head(sample, &mut head);
            to.write_all(&head)?;
            self.stack(self.profile.stack(sample.stack)).try_for_each(|line| to.write_all(line))?;
        }
        Ok(())
    }

    /// Writes the header line of a sample into `head`: thread, CPU, time, period. Times are `CLOCK_MONOTONIC`, as perf
    /// prints them.
    pub(super) fn head(&self, sample: &Sample, head: &mut Vec<u8>) {
        const NS_PER_US: u64 = 1_000;
        const US_PER_S: u64 = 1_000_000;
        let thread = self.threads.get(sample.thread.index()).map_or("", String::as_str);
        let time_us = self.profile.header().started_monotonic_ns.saturating_add(sample.time_ns) / NS_PER_US;
        head.clear();
        head.extend_from_slice(thread.as_bytes());
        head.extend_from_slice(b" [");
        push_number(sample.cpu.into(), 3, b'0', head);
        head.extend_from_slice(b"] ");
        push_number(time_us / US_PER_S, 5, b' ', head);
        head.push(b'.');
        push_number(time_us % US_PER_S, 6, b'0', head);
        head.extend_from_slice(b": ");
        push_number(sample.value.saturating_mul(self.unit_ns), 10, b' ', head);
        head.push(b' ');
        head.extend_from_slice(self.event.as_bytes());
        head.extend_from_slice(b": \n");
    }

    /// The lines of a stack, with the empty line at its end.
    pub(super) fn stack(&self, stack: &Stack) -> impl Iterator<Item = &[u8]> {
        stack.frames.iter().map(|frame| self.frames.get(*frame)).chain([&b"\n"[..]])
    }
}

/// Appends a number, padded to a width. A header has four numbers, and `write!` would take most of the time.
fn push_number(mut number: u64, width: usize, fill: u8, text: &mut Vec<u8>) {
    const MAX_DIGITS: usize = 20;
    let mut digits = [fill; MAX_DIGITS];
    let mut first = MAX_DIGITS;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    let filled = MAX_DIGITS - width.min(MAX_DIGITS);
    text.extend_from_slice(digits.get(first.min(filled)..).unwrap_or_default());
}

fn event(profile: &Profile) -> String {
    match in_one_word(&profile.first_event().name) {
        empty if empty.is_empty() => "samples".to_owned(),
        event => event,
    }
}

/// The name of a thread for parsers that expect two numbers after it: without spaces and without leading digits.
fn comm(name: &str, pid: u32) -> String {
    match in_one_word(name) {
        empty if empty.is_empty() => format!(":{pid}"),
        number if number.starts_with(|first: char| first.is_ascii_digit()) => format!("_{number}"),
        name => name,
    }
}

/// The concatenated lines of all frames.
#[derive(Default)]
struct FrameLines {
    text: String,
    /// The end of each line.
    ends: Vec<usize>,
}

impl FrameLines {
    fn of(profile: &Profile) -> Self {
        let mut lines = Self::default();
        for frame in profile.frame_views() {
            lines.text.push_str(&frame_line(frame));
            lines.ends.push(lines.text.len());
        }
        lines
    }

    fn get(&self, frame: FrameId) -> &[u8] {
        let index = frame.index();
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.text.as_bytes().get(start..end).unwrap_or_default()
    }
}

fn frame_line(frame: FrameView<'_>) -> String {
    let Printed { module, name, .. } = Printed::of(frame);
    format!("\t{:16x} {name} ({module})\n", frame.address().0)
}

/// The module and the symbol of a frame as the text has them.
pub(super) struct Printed {
    /// The assembly of a managed method, else the file; one word without parentheses.
    pub(super) module: String,
    /// The symbol, or the address in brackets.
    pub(super) name: String,
    /// Whether the module is an assembly.
    pub(super) has_assembly: bool,
}

impl Printed {
    pub(super) fn of(frame: FrameView<'_>) -> Self {
        // A managed name starts with its assembly, which .NET tools show as the module.
        let (module, name, has_assembly) = match frame.name().split_once('!') {
            Some((assembly, name)) if is_managed(frame) => (assembly, name, true),
            _ => (module(frame), frame.name(), false),
        };
        let name = label::name(name);
        let name = match frame.source() {
            Ok(_) => name.into_owned(),
            // Parsers cut off `+0x...`, which alone distinguishes unsymbolized functions.
            Err(_) => name.replacen("+0x", "@0x", 1),
        };
        // The last parentheses hold the module.
        let module = in_one_word(module).replace(['(', ')'], "_");
        Self { module: or_unknown(module), name: without_outer_brackets(name), has_assembly }
    }
}

/// The text, or what perf prints for an unknown one: PerfView removes outer brackets, and fails if nothing remains.
fn or_unknown(text: String) -> String {
    let is_empty = text.trim_matches(['(', ')', '[', ']']).is_empty();
    if is_empty { "[unknown]".to_owned() } else { text }
}

/// The name, or the code points of a name of nothing but brackets, which PerfView would remove.
fn without_outer_brackets(name: String) -> String {
    let has_only_brackets = name.trim_matches(['(', ')', '[', ']']).is_empty();
    if has_only_brackets { name.chars().map(label::code_point).collect() } else { name }
}

/// Whether the frame is JIT or precompiled code.
pub(super) fn is_managed(frame: FrameView<'_>) -> bool {
    matches!(frame.kind(), FrameKind::Jit | FrameKind::Precompiled)
}

/// The module that perf prints for code without a file.
fn module(frame: FrameView<'_>) -> &str {
    match (frame.kind(), frame.module().map(ModuleView::path)) {
        (FrameKind::Inlined, _) => "inlined",
        (FrameKind::Kernel, None | Some("[kernel]")) => "[kernel.kallsyms]",
        (_, Some(path)) if !path.is_empty() => path,
        (FrameKind::Jit, _) => "//anon",
        _ => "[unknown]",
    }
}

fn in_one_word(text: &str) -> String {
    label::clean(text).trim().replace(char::is_whitespace, "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{
        Event, Frame, Header, ProfileBuilder, Reason, StackEnd, SymbolSource, Symbolization, test_profile,
    };

    fn text(profile: &Profile) -> String {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_sample_is_a_header_and_its_frames_leaf_first() {
        let mut builder = ProfileBuilder::default();
        let mut frame = |name: &str, kind, module: Option<&str>| {
            let module = module.map(|path| builder.module(path, &[]));
            let name = builder.string(name);
            let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
            let address = ElfAddress(0x1f00);
            builder.frame(Frame { name, kind, module, address, location: None, symbolization })
        };
        let frames = vec![
            frame("ksys_read", FrameKind::Kernel, Some("[kernel]")),
            frame("inner", FrameKind::Inlined, Some("/bin/a b (c)")),
            frame("std::f(int)", FrameKind::Native, Some("/bin/a b (c)")),
            frame("App!Demo.Work(int64)", FrameKind::Jit, None),
            frame("a\nb", FrameKind::Jit, None),
            frame("", FrameKind::Native, None),
        ];
        let stack = builder.stack(frames, StackEnd::Root);
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "5/6 my worker");
        builder.sample(2_000, 3, thread, stack, 1 << 33);
        builder.event(Event::at_frequency("cpu-clock", 1_000_000_000));
        let profile = builder.finish(Header { started_monotonic_ns: 1_000_000_000, ..Header::default() });
        assert_eq!(
            text(&profile),
            "_5/6_my_worker 7/8 [003]     1.000002: 8589934592 cpu-clock: \n\
             \t            1f00 ksys_read ([kernel.kallsyms])\n\
             \t            1f00 inner (inlined)\n\
             \t            1f00 std::f(int) (/bin/a_b__c_)\n\
             \t            1f00 Demo.Work(int64) (App)\n\
             \t            1f00 a\\u{a}b (//anon)\n\
             \t            1f00 [unknown] ([unknown])\n\n"
        );
    }

    #[test]
    fn unsymbolized_functions_differ_without_an_offset() {
        let mut builder = ProfileBuilder::default();
        let frame = Frame {
            name: builder.string("[libx.so+0x12 near f]"),
            kind: FrameKind::Native,
            module: Some(builder.module("/lib/libx.so", &[])),
            address: ElfAddress(0x34),
            location: None,
            symbolization: Symbolization::Address(Reason::NoSymbols),
        };
        let frame = builder.frame(frame);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, 1);
        let profile = builder.finish(Header::default());
        assert!(text(&profile).contains(" 34 [libx.so@0x12 near f] (/lib/libx.so)\n"), "{}", text(&profile));
    }

    #[test]
    fn a_name_of_brackets_alone_is_printed_by_code_points() {
        for (name, expected) in [("()", "\\u{28}\\u{29}"), ("[]", "\\u{5b}\\u{5d}")] {
            let profile = test_profile::folded(&[(&format!("a;{name}"), 1)]);
            assert!(text(&profile).contains(&format!(" 0 {expected} ([unknown])\n")), "{}", text(&profile));
        }
    }

    #[test]
    fn numbers_are_padded_and_never_cut() {
        for number in [0, 7, 99, 100, 1_000_001, u64::MAX] {
            let mut text = Vec::new();
            push_number(number, 3, b'0', &mut text);
            push_number(number, 10, b' ', &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{number:03}{number:10}"));
        }
    }

    #[test]
    fn no_name_breaks_a_line() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            let text = text(&profile);
            let heads = text.lines().filter(|line| line.ends_with(": ")).count();
            let frames = text.lines().filter(|line| line.starts_with('\t') && line.ends_with(')')).count();
            let ends = text.lines().filter(|line| line.is_empty()).count();
            assert_eq!((heads, ends), (profile.samples().len(), profile.samples().len()));
            assert_eq!(text.lines().count(), heads + frames + ends);
        }
    }
}
