//! Prints the hottest function of the whole host every second: `streaming [ROUNDS]`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints what it found")]

use std::{collections::HashMap, env, error::Error, time::Duration};

use profiler::{Profile, Profiler, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = env::args().nth(1).map_or(Ok(10), |rounds| rounds.parse())?;
    let session = Profiler::builder().target(Target::Everything).build()?.start()?;
    for profile in session.intervals(Duration::from_secs(1)).take(rounds) {
        let profile = profile?;
        match hottest(&profile) {
            Some((name, count)) => println!("{count:>6} of {:>6} samples in {name:?}", profile.total_value()),
            None => println!("nothing ran"),
        }
    }
    Ok(())
}

/// The leaf function with the most samples.
fn hottest(profile: &Profile) -> Option<(&str, u64)> {
    let mut leaves = HashMap::<&str, u64>::new();
    for sample in profile.sample_views() {
        if let Some(leaf) = sample.stack().leaf() {
            *leaves.entry(leaf.name()).or_default() += sample.value();
        }
    }
    leaves.into_iter().max_by_key(|(_, count)| *count)
}
