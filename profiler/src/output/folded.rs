//! Folded stacks: `comm;root;...;leaf N`, the input of every flame graph tool.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufWriter, Write},
};

use super::{OutputOptions, label};
use crate::profile::{Profile, Sample, StackId, ThreadId};

/// Writes the lines, sorted.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for (line, count) in lines(profile, options) {
        writeln!(to, "{line} {count}")?;
    }
    to.flush()
}

/// Each distinct line with its count.
pub(super) fn lines(profile: &Profile, options: &OutputOptions) -> BTreeMap<String, u64> {
    // Counting ids first keeps the text work to one line for each thread and stack, not one a sample.
    let mut counts = HashMap::<(ThreadId, StackId), u64>::new();
    for Sample { thread, stack, count, .. } in profile.samples() {
        *counts.entry((*thread, *stack)).or_default() += count;
    }
    let mut lines = BTreeMap::new();
    for ((thread, stack), count) in counts {
        *lines.entry(line(profile, options, thread, stack)).or_default() += count;
    }
    lines
}

fn line(profile: &Profile, options: &OutputOptions, thread: ThreadId, stack: StackId) -> String {
    let thread = profile.thread(thread);
    let process = profile.process(thread.process);
    let mut line = label::clean(profile.string(process.comm)).into_owned();
    if options.per_process {
        line.push(';');
        line.push_str(&label::process(profile, process));
    }
    if options.per_thread {
        line.push(';');
        line.push_str(&label::thread(profile, thread));
    }
    for frame in profile.stack(stack).frames.iter().rev() {
        line.push(';');
        label::push_frame(profile, profile.frame(*frame), options, &mut line);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        address::ElfAddress,
        profile::{
            Frame, FrameId, FrameKind, Header, Naming, ProfileBuilder, SourceLocation, StackEnd, SymbolSource,
        },
    };

    fn frame(builder: &mut ProfileBuilder, name: &str, kind: FrameKind, address: u64) -> FrameId {
        let name = builder.string(name);
        let naming = Naming::Symbol(SymbolSource::SymbolTable);
        builder.frame(Frame {
            name,
            kind,
            module: None,
            address: ElfAddress(address),
            location: None,
            naming,
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
    fn stacks_stand_root_first_and_equal_lines_are_one() {
        assert_eq!(text(&sample(), OutputOptions::default()), "app;main;read 4\napp;main;work:  3\n");
    }

    #[test]
    fn kinds_processes_and_threads_are_shown_when_asked_for() {
        let options =
            OutputOptions { annotate: true, per_thread: true, per_process: true, ..OutputOptions::default() };
        let text = text(&sample(), options);
        let first = text.lines().next().unwrap();
        assert_eq!(first, "app;process 7 (app);thread 8 (worker);main;read_[k] 4");
        assert!(text.contains("work: _[j] 3"));
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_stacks_whatever_the_names_are() {
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
            naming: Naming::Symbol(SymbolSource::Dwarf),
        });
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, 1);
        assert_eq!(text(&builder.finish(Header::default()), OutputOptions::default()), "a;f (a.rs:12) 1\n");
    }

    #[test]
    fn a_sample_without_frames_is_its_process() {
        let mut builder = ProfileBuilder::default();
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let process = builder.process(1, "a b");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, u64::from(u32::MAX) + 2);
        assert_eq!(text(&builder.finish(Header::default()), OutputOptions::default()), "a b 4294967297\n");
    }
}
