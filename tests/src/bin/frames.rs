//! Samples a process and prints its stacks with all frame fields: `frames PID HZ SECONDS [events]`, with names of .NET methods from
//! events alone if so given. For `cargo xtask bench`,
//! which must not depend on the profiler.
//!
//! Each stack is a JSON object in a line: the number of its samples, and its frames from the leaf to the root.

use std::{
    env,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context as _, Result};
use profiler::{
    DotnetNames, Profile, Profiler, Target,
    profile::{Frame, Symbolization},
};
use serde_json::{Value, json};

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
        let frames = &profile.stack(sample.stack).frames;
        let frames: Vec<_> = frames.iter().map(|frame| describe(profile, profile.frame(*frame))).collect();
        writeln!(output, "{}", json!({ "count": sample.value, "frames": frames }))?;
    }
    Ok(())
}

/// The source of its symbol is null if it has none.
fn describe(profile: &Profile, frame: &Frame) -> Value {
    let source = match &frame.symbolization {
        Symbolization::Symbol(source) => Some(format!("{source:?}")),
        _ => None,
    };
    json!({
        "kind": format!("{:?}", frame.kind),
        "address": frame.address.0,
        "source": source,
        "module": frame.module.map_or("", |module| profile.string(profile.module(module).path)),
        "name": profile.string(frame.name),
    })
}
