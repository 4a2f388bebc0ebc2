//! Samples a process and prints its stacks with all frame fields: `frames PID HZ SECONDS [events]`, with names of .NET methods from
//! events alone if so given. For `cargo xtask bench`,
//! which must not depend on the profiler.
//!
//! Each stack is a line `stack`, number of samples, end reason, followed by a line for each frame from the leaf to
//! the root: `frame`, kind, address, symbolization, module, name. Fields are separated by tabs.

use std::{
    env,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context as _, Result};
use profiler::{
    DotnetNames, Profile, Profiler, Target,
    profile::{Frame, Stack},
};

fn main() -> Result<()> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let by_events = arguments.pop_if(|last| last == "events").is_some();
    let arguments: Vec<u64> = arguments.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [pid, frequency_hz, seconds] = arguments[..] else {
        anyhow::bail!("usage: frames PID HZ SECONDS [events]");
    };
    let pid = u32::try_from(pid).context("no pid")?;
    let builder = Profiler::builder().target(Target::Pid(pid)).frequency_hz(frequency_hz).raw_names(true);
    let names = if by_events { DotnetNames::Events } else { DotnetNames::Auto };
    let profile = builder.dotnet_names(names).build()?.start()?.run_for(Duration::from_secs(seconds))?;
    Ok(write(&profile, &mut io::stdout().lock())?)
}

fn write(profile: &Profile, output: &mut impl Write) -> io::Result<()> {
    for sample in profile.samples() {
        let Stack { frames, end, .. } = profile.stack(sample.stack);
        writeln!(output, "stack\t{}\t{end:?}", sample.value)?;
        for frame in frames {
            write_frame(profile, profile.frame(*frame), output)?;
        }
    }
    Ok(())
}

fn write_frame(profile: &Profile, frame: &Frame, output: &mut impl Write) -> io::Result<()> {
    let Frame { kind, address, symbolization, .. } = frame;
    let module = frame.module.map_or("", |module| profile.string(profile.module(module).path));
    // The target chooses its names, so they may contain any character.
    let name = profile.string(frame.name).replace(char::is_control, " ");
    writeln!(output, "frame\t{kind:?}\t{address:x}\t{symbolization:?}\t{module}\t{name}")
}
