//! The log lines of an agent's events.

use profiler_agent::{AgentEvent, MemoryAction, MemoryUse, Sent, WindowAccount, delivery::DeliveryLedger};

use crate::event_log::EventLog;

/// Names and values of a line.
type Fields = Vec<(&'static str, String)>;

/// Writes the line of an event.
pub(super) fn write(log: &EventLog, event: &AgentEvent) {
    match event {
        AgentEvent::MemoryLimited { action, used, frequency_hz } => {
            write_line(log, "memory-limit", &memory_fields(*action, *used, *frequency_hz));
        }
        AgentEvent::Skipped { samples } => write_line(log, "skipped", &[("samples", samples.to_string())]),
        AgentEvent::Window(account) => write_line(log, "window", &window_fields(account)),
        AgentEvent::NotWritten(error) => log.write_failure("write the file of a window", &error.to_string()),
        AgentEvent::WrongAccount(error) => log.write_failure("account for a window", &error.to_string()),
        AgentEvent::Stopped(ledger) => {
            write_line(log, "stopped", &ledger.as_ref().map(ledger_fields).unwrap_or_default());
        }
        // The service manager is notified of the beginning of the end.
        _ => {}
    }
}

fn write_line(log: &EventLog, event: &str, fields: &[(&str, String)]) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    log.write(event, &fields);
}

fn memory_fields(action: MemoryAction, used: MemoryUse, frequency_hz: u64) -> Fields {
    let action = match action {
        MemoryAction::Evict => "evict",
        MemoryAction::Lower => "lower-frequency",
        MemoryAction::Raise => "raise-frequency",
    };
    vec![
        ("action", action.to_owned()),
        ("resident", used.resident_bytes.to_string()),
        ("charged", used.charged_bytes.to_string()),
        ("frequency", frequency_hz.to_string()),
    ]
}

fn window_fields(account: &WindowAccount) -> Fields {
    let WindowAccount { samples, lost, filtered, weight, sent, delivery } = account;
    let counts = [("samples", samples), ("lost", lost), ("filtered", filtered), ("weight", weight)];
    let mut fields: Fields = counts.map(|(name, count)| (name, count.to_string())).into();
    if let Some(Sent { messages, bytes, too_large }) = sent {
        fields.extend([
            ("messages", messages.to_string()),
            ("bytes", bytes.to_string()),
            ("too-large", too_large.to_string()),
        ]);
    }
    fields.extend(delivery.as_ref().map(ledger_fields).unwrap_or_default());
    fields
}

/// The account of the delivery since its start: `sampled + recovered` is the sum of the other samples.
fn ledger_fields(ledger: &DeliveryLedger) -> Fields {
    let fields = [
        ("sampled", ledger.sampled),
        ("recovered", ledger.recovered),
        ("delivered", ledger.delivered),
        ("queued", ledger.queued),
        ("spooled", ledger.spooled),
        ("ambiguous", ledger.ambiguous),
        ("dropped-outage", ledger.dropped.outage),
        ("dropped-too-old", ledger.dropped.too_old),
        ("dropped-rejected", ledger.dropped.rejected),
        ("dropped-too-large", ledger.dropped.too_large),
        ("requests", ledger.requests),
        ("retries", ledger.retries),
    ];
    fields.map(|(name, count)| (name, count.to_string())).into()
}
