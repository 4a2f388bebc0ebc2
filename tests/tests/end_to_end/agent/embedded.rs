//! Tests an agent that another program than the command line runs.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use profiler::{Profiler, Target};
use profiler_agent::{
    Agent, AgentEvent,
    delivery::{DeliveryOptions, Destination},
    selection::sample_count,
};
use profiler_tests::{OtlpReceiver, Reception, Workload, run_beside_others};

use super::process::{get, metric};

#[test]
fn an_embedded_agent_sends_windows_and_reports_each_of_them() {
    const FAILURE: &str = "no disk";
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let receiver = OtlpReceiver::start(Reception::Accept);
    let written = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&written);
    let agent = Agent::builder(Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(99))
        .window(Duration::from_secs(1))
        // For all that the tests of this process have.
        .max_memory_bytes(1 << 40)
        .delivery(DeliveryOptions::new(Destination::OtlpHttp { url: receiver.url() }))
        .write_windows(move |profile| {
            let mut writes = writes.lock().unwrap();
            writes.push(sample_count(profile));
            if writes.len() == 1 { Err(io::Error::other(FAILURE)) } else { Ok(()) }
        })
        .listen(([127, 0, 0, 1], 0).into())
        .start()
        .unwrap();
    let (stopper, address) = (agent.stopper(), agent.metrics_address().unwrap().to_string());
    let (mut windows, mut ends, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut metrics = String::new();
    agent
        .run(None, |event| match event {
            AgentEvent::Window(account) => {
                windows.push(account);
                if windows.iter().filter(|window| window.samples > 0).count() == 2 {
                    metrics = get(&address, "/metrics");
                    stopper.stop();
                }
            }
            AgentEvent::NotWritten(error) => failures.push(error.to_string()),
            end => ends.push(end),
        })
        .unwrap();
    let [AgentEvent::Stopping, AgentEvent::Stopped(Some(ledger))] = &ends[..] else { panic!("{ends:?}") };
    let samples: Vec<_> = windows.iter().map(|window| window.samples).collect();
    assert_eq!((&samples, failures), (&*written.lock().unwrap(), vec![FAILURE.to_owned()]));
    assert!(ledger.is_exact(), "{ledger:?}");
    let sum: u64 = samples.iter().sum();
    assert_eq!((ledger.sampled, ledger.delivered), (sum, sum), "{ledger:?}");
    assert!(windows.iter().all(|window| window.weight == 1 && window.filtered == 0), "{windows:?}");
    assert!(metric(&metrics, "profiler_agent_files_total") >= 2.0, "{metrics}");
    assert_eq!(metric(&metrics, "profiler_agent_frequency_hertz"), 99.0, "{metrics}");
    assert!(!receiver.requests().is_empty());
}
