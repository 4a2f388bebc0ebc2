//! The metrics of the agent.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{
    memory_use::resident_bytes,
    state::{AgentState, Counts},
};
use crate::{
    delivery::DeliveryLedger,
    metrics::{Metric, MetricKind, MetricValue, Status},
    otlp::PROTO_VERSION,
};

/// The status for the server of the metrics.
pub(super) fn status(state: &AgentState) -> Status {
    let mut metrics = of_process();
    metrics.extend(of_counts(&state.counts()));
    if let Some(delivery) = state.delivery() {
        metrics.extend(of_ledger(&delivery.ledger()));
        let last_seconds = delivery.health().last_success_unix_seconds.unwrap_or(0);
        metrics.push(Metric::gauge(
            "profiler_agent_last_delivery_timestamp_seconds",
            "When the backend last accepted a request; 0 if it never did.",
            last_seconds as f64,
        ));
    }
    Status { health: state.health(), readiness: state.readiness(), metrics }
}

fn of_process() -> Vec<Metric> {
    let cpu_time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    let version = MetricValue {
        labels: vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("otlp_version", PROTO_VERSION.to_owned()),
        ],
        value: 1.0,
    };
    vec![
        Metric {
            name: "profiler_agent_build_info",
            help: "The version of the agent and of the OTLP messages that it sends.",
            kind: MetricKind::Gauge,
            values: vec![version],
        },
        Metric::gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes() as f64),
        Metric::counter(
            "process_cpu_seconds_total",
            "CPU time of all threads, user and system, without that of the BPF programs.",
            cpu_time.as_secs_f64(),
        ),
    ]
}

fn of_counts(counts: &Counts) -> Vec<Metric> {
    vec![
        Metric::counters(
            "profiler_agent_windows_total",
            "Windows that have ended; those that were not sampled because of --probability are skipped.",
            "outcome",
            &[("sampled", counts.sampled_windows), ("skipped", counts.skipped_windows)],
        ),
        Metric::counters(
            "profiler_agent_measured_samples_total",
            "Samples that were due, without the weight of --probability.",
            "outcome",
            &[
                ("sent", counts.samples - counts.filtered),
                ("filtered", counts.filtered),
                ("skipped", counts.skipped),
                ("lost", counts.lost),
            ],
        ),
        Metric::counters(
            "profiler_agent_frames_total",
            "Frames of all samples.",
            "outcome",
            &[("symbolized", counts.symbolized_frames), ("unsymbolized", counts.unsymbolized_frames)],
        ),
        Metric::counters(
            "profiler_agent_files_total",
            "Files of --write-dir.",
            "outcome",
            &[("written", counts.written_files), ("failed", counts.failed_files)],
        ),
        Metric::counters(
            "profiler_agent_memory_actions_total",
            "Reactions to the memory limit: stacks were evicted, or the frequency was lowered.",
            "action",
            &[("evicted", counts.evictions), ("lowered", counts.lowered)],
        ),
        Metric::gauge(
            "profiler_agent_frequency_hertz",
            "The sampling frequency of each CPU in sampled windows.",
            counts.frequency_hz as f64,
        ),
        Metric::gauge(
            "profiler_agent_memory_limit_bytes",
            "The limit of resident memory.",
            counts.memory_limit_bytes as f64,
        ),
    ]
}

fn of_ledger(ledger: &DeliveryLedger) -> Vec<Metric> {
    let pending = |place: &str, samples: u64| MetricValue {
        labels: vec![("place", place.to_owned())],
        value: samples as f64,
    };
    vec![
        Metric::counters(
            "profiler_agent_samples_total",
            "Samples that were given to the delivery and have an outcome, with the weight of --probability.",
            "outcome",
            &[
                ("delivered", ledger.delivered),
                ("ambiguous", ledger.ambiguous),
                ("dropped_outage", ledger.dropped.outage),
                ("dropped_too_old", ledger.dropped.too_old),
                ("dropped_rejected", ledger.dropped.rejected),
                ("dropped_too_large", ledger.dropped.too_large),
            ],
        ),
        Metric::counters(
            "profiler_agent_received_samples_total",
            "Samples that were given to the delivery, with the weight of --probability.",
            "source",
            &[("windows", ledger.sampled), ("spool_of_earlier_process", ledger.recovered)],
        ),
        Metric {
            name: "profiler_agent_pending_samples",
            help: "Samples that wait for the backend.",
            kind: MetricKind::Gauge,
            values: vec![pending("queue", ledger.queued), pending("spool", ledger.spooled)],
        },
        Metric::counter("profiler_agent_requests_total", "Attempts to send.", ledger.requests as f64),
        Metric::counter("profiler_agent_retries_total", "Attempts to send again.", ledger.retries as f64),
        Metric::counter("profiler_agent_sent_bytes_total", "Bytes sent.", ledger.sent_bytes as f64),
        Metric::gauge("profiler_agent_queue_bytes", "Bytes of the queue.", ledger.queue_bytes as f64),
        Metric::gauge("profiler_agent_spool_bytes", "Bytes of the spool.", ledger.spool_bytes as f64),
        Metric::counter(
            "profiler_agent_damaged_spool_files_total",
            "Files of the spool that were removed because they were damaged.",
            ledger.damaged_spool_files as f64,
        ),
    ]
}
