//! Tests ASP.NET Core servers under load, without any setting in the target's environment.

use std::{process::Command, time::Duration};

use profiler::{
    Profile,
    profile::{EventId, ThreadState},
};
use profiler_tests::{
    FoldedStack, FoldedStacks, Workload, aspnet, measure_alone, run_beside_others, sample, sample_pid,
    sample_settled, workload_path,
};

/// One percent is many samples.
const SAMPLES: u64 = 4_000;

/// Starts the server and returns its port.
fn start() -> (Workload, String) {
    let mut command = Command::new(workload_path("dotnet/run"));
    let mut server = Workload::run(command.args(["aspnet", "serve", "60"]).env("PERF_MAP", "0"));
    let port = server.wait_for("port ");
    (server, port)
}

#[test]
fn a_server_under_load_is_symbolized_from_the_kernel_to_the_application() {
    let Some(_lock) = measure_alone() else { return };
    let (server, port) = start();
    aspnet::warm_up(&port, &aspnet::EVERY_LAYER);
    let _load = aspnet::load(&port, 4, &aspnet::EVERY_LAYER);
    aspnet::assert_symbolized(&sample_settled(sample_pid(server.pid()), SAMPLES));
}

#[test]
fn sleeping_requests_have_no_samples() {
    let Some(_lock) = run_beside_others() else { return };
    let (server, port) = start();
    let paths = ["/busy", "/sleep"];
    aspnet::warm_up(&port, &paths);
    let _load = aspnet::load(&port, 2, &paths);
    let stacks = FoldedStacks::from_profile(&sample(sample_pid(server.pid()), SAMPLES));
    let has = |stack: &FoldedStack, part: &str| stack.frames.iter().any(|frame| frame.contains(part));
    let is_busy = |stack: &FoldedStack| has(stack, "Workload.Routes.Busy");
    let busy = stacks.percent(is_busy);
    assert!(busy > 50.0, "busy {busy} %: {stacks:#?}");
    // The method itself, or the state machine that the compiler generates for it. The continuation after the sleep
    // may process the next request of the connection.
    let is_asleep = |stack: &FoldedStack| has(stack, "Workload.Routes.Sleep") || has(stack, "<Sleep>");
    let sleeping = stacks.percent(|stack| is_asleep(stack) && !is_busy(stack));
    assert!(sleeping < 2.0, "sleeping {sleeping} %: {stacks:#?}");
}

/// The sum of the values of an event's samples with a method on their stack, in some states.
fn value_below(profile: &Profile, event: EventId, method: &str, is_in: impl Fn(ThreadState) -> bool) -> u64 {
    let samples = profile.samples_of(event).filter(|sample| sample.state.is_none_or(&is_in));
    let below = samples.filter(|sample| {
        let frames = profile.stack(sample.stack).frames.iter();
        { frames }.any(|frame| profile.string(profile.frame(*frame).name).contains(method))
    });
    below.map(|sample| sample.value).sum()
}

/// A profile that mixes both cannot say which of the routes uses the CPU.
#[test]
fn a_route_that_waits_is_in_the_wall_clock_samples_and_not_in_the_cpu_samples() {
    let Some(_lock) = measure_alone() else { return };
    let (server, port) = start();
    let paths = ["/busy", "/wait"];
    aspnet::warm_up(&port, &paths);
    let _load = aspnet::load(&port, 2, &paths);
    let builder = sample_pid(server.pid()).frequency_hz(499).wall_clock_hz(49);
    let mut session = builder.build().unwrap().start().unwrap();
    session.wait(Some(Duration::from_secs(5)));
    let profile = session.stop().unwrap();
    let (cpu, wall) = (profile.find_event("cpu-clock").unwrap(), profile.find_event("wall").unwrap());
    let below = |event, method| value_below(&profile, event, method, |_| true);
    let (busy, waiting) = (below(cpu, "Workload.Routes.Busy"), below(cpu, "Workload.Routes.Wait"));
    assert!(waiting * 50 < busy, "CPU samples: {waiting} of the route that waits, {busy} of the other");
    // Each route has a request in turn. The one that computes can wait for a CPU as well.
    let blocked = value_below(&profile, wall, "Workload.Routes.Wait", |state| state == ThreadState::Blocked);
    let (busy, waiting) = (below(wall, "Workload.Routes.Busy"), below(wall, "Workload.Routes.Wait"));
    let share = waiting as f64 / (busy + waiting) as f64;
    assert!((0.25..0.75).contains(&share), "wall-clock samples: {waiting} and {busy}");
    assert!(blocked * 10 > waiting * 9, "{blocked} of {waiting} wall-clock samples are blocked");
}
