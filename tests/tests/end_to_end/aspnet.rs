//! Tests ASP.NET Core servers under load, without any setting in the target's environment.

use std::{process::Command, time::Duration};

use profiler::{
    Profile,
    profile::{EventId, ThreadState},
};
use profiler_tests::{
    FoldedStack, FoldedStacks, Workload, aspnet, run_beside_others, sample, sample_pid, sample_settled,
    wait_until, workload_path,
};

/// One percent is many samples.
const SAMPLES: u64 = 4_000;

/// Starts the server and returns its port.
fn start() -> (Workload, String) {
    let mut command = Command::new(workload_path("dotnet/run"));
    let mut server = Workload::run(command.args(["aspnet", "serve", "600"]).env("PERF_MAP", "0"));
    let port = server.wait_for("port ");
    (server, port)
}

#[test]
fn a_server_under_load_is_symbolized_from_the_kernel_to_the_application() {
    let Some(_lock) = run_beside_others() else { return };
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
    const LEAST_TICKS: u64 = 20;
    let Some(_lock) = run_beside_others() else { return };
    let (server, port) = start();
    let paths = ["/busy", "/wait"];
    aspnet::warm_up(&port, &paths);
    let _load = aspnet::load(&port, 2, &paths);
    let mut session =
        sample_pid(server.pid()).frequency_hz(499).wall_clock_hz(49).build().unwrap().start().unwrap();
    // Both are requested equally often. On a busy machine, as many samples take longer.
    let mut seconds = 3;
    let profile = wait_until("samples of both routes", || {
        let profile = session.take_profile(Duration::from_secs(seconds)).unwrap();
        seconds *= 2;
        let (cpu, wall) = (profile.find_event("cpu-clock").unwrap(), profile.find_event("wall").unwrap());
        let has = |event, method, state, least| {
            value_below(&profile, event, method, |found| found == state) > least
        };
        let has_busy = has(cpu, "Workload.Routes.Busy", ThreadState::OnCpu, 200)
            && has(wall, "Workload.Routes.Busy", ThreadState::OnCpu, LEAST_TICKS);
        let has_both = has_busy && has(wall, "Workload.Routes.Wait", ThreadState::Blocked, LEAST_TICKS);
        has_both.then_some(profile)
    });
    let (cpu, wall) = (profile.find_event("cpu-clock").unwrap(), profile.find_event("wall").unwrap());
    let below = |event, method| value_below(&profile, event, method, |_| true);
    let (busy, waiting) = (below(cpu, "Workload.Routes.Busy"), below(cpu, "Workload.Routes.Wait"));
    assert!(waiting * 50 < busy, "CPU samples: {waiting} of the route that waits, {busy} of the other");
    let in_wait = |wanted| value_below(&profile, wall, "Workload.Routes.Wait", |state| state == wanted);
    let (blocked, on_cpu) = (in_wait(ThreadState::Blocked), in_wait(ThreadState::OnCpu));
    // Its threads can wait for a CPU as well, on a busy machine.
    assert!(
        on_cpu * 10 < blocked,
        "the route that waits is on a CPU in {on_cpu} samples and blocked in {blocked}"
    );
}
