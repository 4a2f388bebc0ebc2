//! Tests ASP.NET Core servers under load, without any setting in the target's environment.

use std::process::Command;

use profiler_tests::{
    FoldedStack, FoldedStacks, Workload, aspnet, lock_privileged, sample, sample_pid, sample_settled,
    share_privileged, workload_path,
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
    let Some(_lock) = lock_privileged() else { return };
    let (server, port) = start();
    aspnet::warm_up(&port, &aspnet::EVERY_LAYER);
    let _load = aspnet::load(&port, 4, &aspnet::EVERY_LAYER);
    aspnet::assert_symbolized(&sample_settled(sample_pid(server.pid()), SAMPLES));
}

#[test]
fn sleeping_requests_have_no_samples() {
    let Some(_lock) = share_privileged() else { return };
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
