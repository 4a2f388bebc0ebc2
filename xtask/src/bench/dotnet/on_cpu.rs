//! Measures whether only CPU time is sampled, with requests to a busy route and to a sleeping one.

use std::path::Path;

use anyhow::Result;

use super::{
    super::report::{Report, number},
    running::{Place, Program, Running},
    sampled::{self, Frame},
};

const FREQUENCY_HZ: u64 = 999;

const SERVER: Program = Program::Server { paths: &["/busy", "/sleep"] };

/// A sleeping route still runs before and after the sleep.
const MAX_SLEEPING_PERCENT: f64 = 2.0;

/// Adds a sentence with the shares of the samples.
pub(super) fn measure(seconds: u64, folder: &Path, report: &mut Report) -> Result<()> {
    let running = Running::start(SERVER, Place::Host, folder)?;
    let sampled = sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?;
    let [busy, sleeping] = [Route::Busy, Route::Sleep]
        .map(|route| sampled.percent_with(|frames| route_of(frames) == Some(route)));
    report.paragraph(&format!(
        "Samples are of code on a CPU. A client requests two routes of an ASP.NET Core server in turns: the route that \
         computes for 100 ms has {} % of the samples, the route that sleeps for 100 ms has {} %.",
        number(busy),
        number(sleeping)
    ));
    report.at_most("% of samples in a sleeping route", sleeping, MAX_SLEEPING_PERCENT);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Busy,
    Sleep,
}

/// The route nearest to the leaf: the continuation after a sleep may process the next request of its connection.
fn route_of(frames: &[Frame]) -> Option<Route> {
    let is_of = |name: &str, route: &str| {
        // The method itself, or the state machine that the compiler generates for it.
        name.contains(&format!("Workload.Routes.{route}")) || name.contains(&format!("<{route}>"))
    };
    frames.iter().find_map(|frame| match &frame.name {
        name if is_of(name, "Busy") => Some(Route::Busy),
        name if is_of(name, "Sleep") => Some(Route::Sleep),
        _ => None,
    })
}
