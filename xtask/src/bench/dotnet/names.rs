//! Measures how many managed frames are symbolized, and how many symbols agree with those of the runtime for the
//! address.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use fs_err as fs;

use super::{
    super::report::Report,
    running::{Place, Program, Running},
    sampled::{self, Frame, Kind, Sampled},
    truth::{Truth, is_same_method},
};

/// High enough for tenths of a percent.
const FREQUENCY_HZ: u64 = 999;

/// `PerfMapEnabled` for the perf map alone: the profiler would take symbols from a jitdump.
const MAP: &str = "3";
/// `PerfMapEnabled` for perf map and jitdump, which the profiler does not need for precompiled code.
const MAP_AND_JITDUMP: &str = "1";

const PROGRAMS: [(&str, Program); 4] = [
    (".NET Core 3.1", Program::App { version: "3.1", mode: "web" }),
    (".NET 9.0", Program::App { version: "9.0", mode: "web" }),
    ("ASP.NET Core 9.0 under load", Program::SERVER),
    (".NET 9.0, a single file", Program::SingleFile { mode: "web" }),
];

/// The programs whose runtime can list its JIT code, and whether it lists precompiled code too.
const CHECKED: [(usize, bool); 3] = [(0, false), (1, true), (2, true)];

/// Frames of one kind, weighted by samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    meant: u64,
    all: u64,
}

struct Named {
    managed: Share,
    jit: Share,
    precompiled: Share,
}

/// Frames whose address has a symbol from the runtime.
struct Checked {
    jit: Verdict,
    precompiled: Option<Verdict>,
}

/// Pairs of different symbols from the profiler and from the runtime.
#[derive(Default)]
struct Verdict {
    right: Share,
    wrong: BTreeMap<(String, String), u64>,
}

/// Adds the tables. Different symbols are printed on the terminal.
pub(super) fn measure(seconds: u64, folder: &Path, report: &mut Report) -> Result<()> {
    let columns = ["frames", "all", "compiled at run time", "precompiled"];
    report.heading("managed frames with a name, %", &columns);
    for (title, program) in PROGRAMS {
        for (place, words) in [(Place::Host, "on the host"), (Place::Container, "in a container")] {
            let cells = match named(program, place, seconds, folder) {
                Ok(Named { managed, jit, precompiled }) => {
                    [managed.all.to_string(), managed.cell(), jit.cell(), precompiled.cell()]
                }
                Err(reason) => [
                    format!("{reason:#}").replace(['|', '\n'], " "),
                    String::new(),
                    String::new(),
                    String::new(),
                ],
            };
            report.row_of(&format!("{title}, {words}"), &cells);
        }
    }
    let columns = ["compiled at run time: frames", "right", "precompiled: frames", "right"];
    report.heading("the name that the runtime has for the address, %", &columns);
    for (index, has_jitdump) in CHECKED {
        let (title, program) = PROGRAMS[index];
        let Checked { jit, precompiled } = check(program, has_jitdump, seconds, folder)?;
        let cells = precompiled.as_ref().map_or(["-", "-"].map(str::to_owned), Verdict::cells);
        report.row_of(title, &[jit.cells(), cells].concat());
        for ((ours, theirs), count) in
            [Some(jit), precompiled].into_iter().flatten().flat_map(|verdict| verdict.wrong)
        {
            eprintln!("{title}: {count} times {ours}, which is {theirs}");
        }
    }
    Ok(())
}

fn named(program: Program, place: Place, seconds: u64, folder: &Path) -> Result<Named> {
    let running = Running::start(program, place, folder)?;
    let sampled = sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?;
    let share = |is_meant: fn(&Frame) -> bool| {
        Share::from_frames(sampled.frames().filter(|(frame, _)| is_meant(frame)), |frame| {
            frame.source.is_some()
        })
    };
    Ok(Named {
        managed: share(Frame::is_managed),
        jit: share(|frame| frame.kind == Kind::Jit),
        precompiled: share(|frame| frame.kind == Kind::Precompiled),
    })
}

fn check(program: Program, has_jitdump: bool, seconds: u64, folder: &Path) -> Result<Checked> {
    let running = Running::start_mapped(program, MAP, folder)?;
    let sampled = sampled::sample_by_events(running.pid(), FREQUENCY_HZ, seconds)?;
    let jit = check_jit(&sampled, &Truth::of_perf_map(running.pid())?);
    drop(running);
    if !has_jitdump {
        return Ok(Checked { jit, precompiled: None });
    }
    let running = Running::start_mapped(program, MAP_AND_JITDUMP, folder)?;
    let sampled = sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?;
    let images = images(&fs::read_to_string(format!("/proc/{}/maps", running.pid()))?);
    let precompiled = check_precompiled(&sampled, &images, &Truth::of_jitdump(running.pid())?);
    Ok(Checked { jit, precompiled: Some(precompiled) })
}

/// Only symbols from runtime events count: a symbol from the perf map would be compared with itself.
fn check_jit(sampled: &Sampled, truth: &Truth) -> Verdict {
    let mut verdict = Verdict::default();
    for (frame, count) in sampled.frames() {
        if frame.kind == Kind::Jit && frame.source.as_deref() == Some("RuntimeEvents") {
            verdict.hold(frame, truth.name_at(frame.address), count);
        }
    }
    verdict
}

fn check_precompiled(sampled: &Sampled, images: &BTreeMap<String, u64>, truth: &Truth) -> Verdict {
    let mut verdict = Verdict::default();
    for (frame, count) in sampled.frames() {
        if frame.kind == Kind::Precompiled {
            let base = images.get(&frame.module).copied().unwrap_or(0);
            verdict.hold(frame, truth.name_at(base + frame.address), count);
        }
    }
    verdict
}

/// The start address of each .NET image: the first private mapping of its headers. The runtime maps some images a
/// second time, shared and flat, and small headers again together with the code behind them.
fn images(maps: &str) -> BTreeMap<String, u64> {
    let mut images = BTreeMap::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, permissions, offset, _, _, path] = fields[..] else { continue };
        let is_beginning = permissions.ends_with('p') && u64::from_str_radix(offset, 16) == Ok(0);
        let start = range.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        if let (true, Some(start)) = (is_beginning, start) {
            images.entry(path.to_owned()).or_insert(start);
        }
    }
    images
}

impl Share {
    fn from_frames<'a>(
        frames: impl Iterator<Item = (&'a Frame, u64)>,
        is_meant: impl Fn(&Frame) -> bool,
    ) -> Self {
        frames.fold(Self::default(), |mut share, (frame, count)| {
            share.add(is_meant(frame), count);
            share
        })
    }

    fn add(&mut self, is_meant: bool, count: u64) {
        self.all += count;
        self.meant += if is_meant { count } else { 0 };
    }

    /// In percent, never rounded up to a hundred.
    fn cell(self) -> String {
        match self {
            Self { all: 0, .. } => "-".to_owned(),
            Self { meant, all } if meant == all => "100".to_owned(),
            Self { meant, all } => format!("{:.2}", (100.0 * meant as f64 / all as f64).min(99.99)),
        }
    }
}

impl Verdict {
    /// Frames without a symbol of the runtime are not compared.
    fn hold(&mut self, frame: &Frame, of_runtime: Option<&str>, count: u64) {
        let Some(of_runtime) = of_runtime else { return };
        let is_right = is_same_method(&frame.name, of_runtime);
        self.right.add(is_right, count);
        if !is_right {
            *self.wrong.entry((frame.name.clone(), of_runtime.to_owned())).or_default() += count;
        }
    }

    fn cells(&self) -> [String; 2] {
        [self.right.all.to_string(), self.right.cell()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_starts_at_the_mapping_of_its_headers() {
        let maps = "7f10-7f20 r--s 00000000 08:01 7 /x/a.dll\n7f30-7f40 r--p 00000000 08:01 7 /x/a.dll\n\
                    7f40-7f50 r-xp 00000000 08:01 7 /x/a.dll\n7f60-7f70 rw-p 00000000 00:00 0\n";
        assert_eq!(images(maps), BTreeMap::from([("/x/a.dll".to_owned(), 0x7f30)]));
    }

    #[test]
    fn an_incomplete_share_is_not_rounded_up_to_a_hundred_percent() {
        let share = |meant, all| Share { meant, all }.cell();
        assert_eq!(
            [share(7, 7), share(99_999, 100_000), share(1, 3), share(0, 0)],
            ["100", "99.99", "33.33", "-"]
        );
    }
}
