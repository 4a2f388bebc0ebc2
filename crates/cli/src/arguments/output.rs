//! Arguments that select outputs, their formats and how stacks are written.

use std::path::PathBuf;

use clap::Args;
use profiler_profile_formats::{Format, OutputOptions};

/// Arguments that select outputs and formats.
#[derive(Args, Debug)]
pub(in super::super) struct OutputArguments {
    /// Write to this file, in the format of its extension: .html, .svg, .folded, .top, .profile and others. Can be repeated
    ///
    /// The formats are those of .folded, .txt, .svg, .html, .top; .profile for later use; .pb.gz, .speedscope.json, .json (Firefox
    /// Profiler), .perf.txt, .trace.zip (PerfView) for other tools; .jsonl for runtime events, .nettrace for them as the runtime of one
    /// process sends them, .findings.json for the findings. - is standard output, -.svg in that format [default: standard output, as the
    /// table on a terminal, else as folded stacks]
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub(in super::super) output: Vec<PathBuf>,
    /// The format of all outputs, whatever their extensions are: folded, svg, html, top, pprof, speedscope, firefox,
    /// perf-script, trace-zip, events-jsonl, findings-json, profile
    #[arg(long, value_name = "NAME")]
    pub(in super::super) format: Option<Format>,
    #[command(flatten)]
    stacks: StackArguments,
}

/// Arguments that control how stacks are written.
#[derive(Args, Debug)]
pub(in super::super) struct StackArguments {
    /// Mark kinds of frames in folded stacks: _[k] kernel, _[j] JIT, _[i] inlined
    #[arg(long)]
    annotate: bool,
    /// Show threads as frames, with name and id
    #[arg(long)]
    per_thread: bool,
    /// Show processes as frames, with name and id
    #[arg(long)]
    per_process: bool,
    /// Show containers as frames, with a prefix of their ids
    #[arg(long)]
    per_container: bool,
    /// Show the state of the thread as a frame in folded stacks and flame graphs: [on CPU], [runnable], [throttled],
    /// [blocked], [disk], [stopped]
    #[arg(long)]
    per_state: bool,
    /// Show each unsymbolized frame with its address, in place of one frame `[module]` for consecutive ones
    #[arg(long)]
    addresses: bool,
    /// Show the frames of runtime, libc and kernel in which threads wait, in place of one frame with the cause, as [lock], in flame
    /// graphs, tables and the live view
    #[arg(long)]
    wait_frames: bool,
}

impl OutputArguments {
    /// The options of all outputs.
    pub(in super::super) fn options(&self) -> OutputOptions {
        self.stacks.options()
    }
}

impl StackArguments {
    /// The options of all outputs.
    pub(in super::super) fn options(&self) -> OutputOptions {
        OutputOptions {
            annotate: self.annotate,
            per_thread: self.per_thread,
            per_process: self.per_process,
            per_container: self.per_container,
            per_state: self.per_state,
            addresses: self.addresses,
            wait_frames: self.wait_frames,
            ..OutputOptions::default()
        }
    }
}
