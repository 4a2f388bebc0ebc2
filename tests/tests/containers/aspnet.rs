//! Tests profiles of an ASP.NET Core server in a container, taken from the host.

use profiler_tests::{aspnet, run_beside_others, sample_pid, sample_settled};

use crate::dotnet::builder_for;

#[test]
fn a_server_in_a_container_is_symbolized_from_the_kernel_to_the_application() {
    let Some(_lock) = run_beside_others() else { return };
    let builder = builder_for("aspnet", "serve").variable("PERF_MAP=0");
    let mut container = builder.in_network_of_host().start();
    let port = container.line("port ");
    aspnet::warm_up(&port, &aspnet::EVERY_LAYER);
    let _load = aspnet::load(&port, 4, &aspnet::EVERY_LAYER);
    aspnet::assert_symbolized(&sample_settled(sample_pid(container.pid()), 4_000));
    assert!(!container.file("/tmp/perf-1.map").exists(), "no file is left in the target");
}
