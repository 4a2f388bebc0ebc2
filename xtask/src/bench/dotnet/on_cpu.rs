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

/// Shares of the samples, in percent.
pub(super) struct Measured {
    busy: f64,
    sleeping: f64,
}

pub(super) fn measure(seconds: u64, folder: &Path) -> Result<Measured> {
    let running = Running::start(SERVER, Place::Host, folder)?;
    let sampled = sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?;
    let share = |route: Route| sampled.percent_with(|frames| route_of(frames) == Some(route));
    Ok(Measured { busy: share(Route::Busy), sleeping: share(Route::Sleep) })
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

impl Measured {
    pub(super) fn report(&self) -> Report {
        let mut report = Report {
            markdown: format!(
                "Samples are of code on a CPU. A client requests two routes of an ASP.NET Core server in turns: the route that \
             computes for 100 ms has {} % of the samples, the route that sleeps for 100 ms has {} %.\n",
                number(self.busy),
                number(self.sleeping)
            ),
            ..Report::default()
        };
        let is_kept = self.sleeping < MAX_SLEEPING_PERCENT;
        report.check("% of samples in a sleeping route", self.sleeping, MAX_SLEEPING_PERCENT, is_kept);
        report
    }
}
