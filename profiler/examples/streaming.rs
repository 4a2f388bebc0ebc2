//! Prints the hottest function of the whole host every second: `streaming [ROUNDS]`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints what it found")]

use std::{collections::HashMap, env, error::Error, time::Duration};

use profiler::{Profile, Profiler, Target, profile::FrameId};

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = env::args().nth(1).map_or(Ok(10), |rounds| rounds.parse())?;
    let mut session = Profiler::builder().target(Target::Everything).build()?.start()?;
    for _ in 0..rounds {
        let profile = session.take_profile(Duration::from_secs(1))?;
        match hottest(&profile) {
            Some((frame, count)) => {
                let name = profile.string(profile.frame(frame).name);
                println!("{count:>6} of {:>6} samples in {name:?}", profile.total_value());
            }
            None => println!("nothing ran"),
        }
    }
    Ok(())
}

/// The leaf frame with the most samples.
fn hottest(profile: &Profile) -> Option<(FrameId, u64)> {
    let mut leaves = HashMap::<FrameId, u64>::new();
    for sample in profile.samples() {
        if let Some(leaf) = profile.stack(sample.stack).frames.first() {
            *leaves.entry(*leaf).or_default() += sample.value;
        }
    }
    leaves.into_iter().max_by_key(|(_, count)| *count)
}
