//! Writes a profile with a million samples in one format, for `cargo xtask bench`. Prints the seconds it took, the
//! peak memory of the process in MB, profile included, and the MB that were written. `collapse` reads `perf-script`
//! text with inferno.
//!
//! `formats FORMAT STACKS [FILE]`, `formats collapse FILE`

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

use std::{
    fs,
    io::{self, BufReader, Write},
    time::Instant,
};

use anyhow::{Context as _, Result};
use inferno::collapse::{Collapse as _, perf};
use profiler::{
    ElfAddress, Format, OutputOptions, Profile,
    profile::{Event, Frame, FrameKind, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization},
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let format = arguments.next().context("no format")?;
    if format == "collapse" {
        let text = BufReader::new(fs::File::open(arguments.next().context("no file")?)?);
        let start = Instant::now();
        let mut to = Counter::default();
        perf::Folder::default().collapse(text, &mut to)?;
        return report(start, &to);
    }
    let format: Format = format.parse()?;
    let profile = profile(arguments.next().context("no number of stacks")?.parse()?);
    let mut to = Counter { file: arguments.next().map(fs::File::create).transpose()?, bytes: 0 };
    let start = Instant::now();
    format.write_with(&profile, &OutputOptions::default(), &mut to)?;
    report(start, &to)
}

fn report(start: Instant, to: &Counter) -> Result<()> {
    const KIB_PER_MB: f64 = 1024.0 / 1e6;
    let seconds = start.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
    let peak_kib: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    println!("{seconds:.3} {:.1} {:.1}", peak_kib * KIB_PER_MB, to.bytes as f64 / 1e6);
    Ok(())
}

/// A million samples with stacks of 20 frames, in eight threads. With a million stacks, each has one sample.
fn profile(stacks: usize) -> Profile {
    const SAMPLES: u64 = 1_000_000;
    const INTERVAL_NS: u64 = 60_000;
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 999));
    let kinds = [FrameKind::Jit, FrameKind::Native, FrameKind::Precompiled, FrameKind::Kernel];
    let functions: Vec<_> = (0..10_000)
        .map(|number| {
            let name =
                builder.string(&format!("App!Company.Area{}.Service{number}.Handle(string)", number % 50));
            let module = Some(builder.module(&format!("/app/Area{}.dll", number % 50), &[]));
            let (kind, address) = (kinds[number % kinds.len()], ElfAddress(number as u64));
            let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
            builder.frame(Frame { name, kind, module, address, location: None, symbolization })
        })
        .collect();
    let mut random = Random(1);
    let stacks: Vec<_> = (0..stacks)
        .map(|number| {
            // FoldedStacks share their frames near the root and differ near the leaf.
            let mut frames: Vec<_> = (0..6).map(|_| functions[random.below(functions.len())]).collect();
            frames.extend(
                (0..10).rev().map(|level| functions[100 + level * 40 + (number >> (level / 2)) % 40]),
            );
            frames.extend((0..4).map(|level| functions[level * 10 + number % 3]));
            builder.stack(frames, StackEnd::Root)
        })
        .collect();
    let process = builder.process(7, "app");
    let threads: Vec<_> =
        (0..8).map(|tid| builder.thread(process, 7 + tid, &format!("worker {tid}"))).collect();
    for index in 0..SAMPLES {
        let is_each_once = stacks.len() as u64 == SAMPLES;
        let stack = stacks[if is_each_once { index as usize } else { random.below(stacks.len()) }];
        builder.sample(index * INTERVAL_NS, 0, threads[random.below(threads.len())], stack, 1);
    }
    builder.finish(Header { duration_ns: SAMPLES * INTERVAL_NS, ..Header::default() })
}

/// Counts the bytes that are written to it, and writes them to a file if a path was given.
#[derive(Default)]
struct Counter {
    file: Option<fs::File>,
    bytes: u64,
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A pseudo-random generator with a fixed seed (Vigna's SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    }
}
