//! The lines that a service writes to standard output, for a log collector: logfmt or JSON, one event a line.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use clap::ValueEnum;
use jiff::Timestamp;
use profiler_profile_formats::printable;

/// The format of the lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    /// `time=2026-11-24T08:30:00Z event=written file=/var/tmp/trap.profile`
    Logfmt,
    /// `{"time":"2026-11-24T08:30:00Z","event":"written","file":"/var/tmp/trap.profile"}`
    Json,
}

/// Writes the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventLog {
    format: LogFormat,
    is_quiet: bool,
}

impl EventLog {
    /// `is_quiet`: only failures are written.
    pub(super) fn new(format: LogFormat, is_quiet: bool) -> Self {
        Self { format, is_quiet }
    }

    /// Writes an event with its fields.
    pub(super) fn write(&self, event: &str, fields: &[(&str, &str)]) {
        if !self.is_quiet {
            self.write_line(event, fields);
        }
    }

    /// Writes a failure after which the service goes on.
    pub(super) fn write_failure(&self, action: &str, error: &str) {
        self.write_line("failed", &[("action", action), ("error", error)]);
    }

    fn write_line(&self, event: &str, fields: &[(&str, &str)]) {
        let line = line(self.format, SystemTime::now(), event, fields);
        let mut stdout = io::stdout().lock();
        // The service does not end because its log has no reader any more.
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

fn line(format: LogFormat, time: SystemTime, event: &str, fields: &[(&str, &str)]) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    let time = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let all = [("time", time.as_str()), ("event", event)].into_iter().chain(fields.iter().copied());
    let all = all.map(|(key, value)| (key, printable(value)));
    match format {
        LogFormat::Logfmt => {
            all.map(|(key, value)| format!("{key}={}", logfmt_value(&value))).collect::<Vec<_>>().join(" ")
        }
        LogFormat::Json => {
            let fields = all.map(|(key, value)| format!("{}:{}", quoted(key), quoted(&value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
    }
}

/// A value, in quotation marks where it contains what separates values.
fn logfmt_value(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\');
    if !value.is_empty() && value.bytes().all(is_plain) { value.to_owned() } else { quoted(value) }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_escaped_where_they_need_it() {
        let fields =
            [("file", "/tmp/a.profile"), ("condition", "cpu < 20%"), ("name", "a=\"\u{1b}[31m\n"), ("x", "")];
        let time = SystemTime::UNIX_EPOCH;
        let logfmt = line(LogFormat::Logfmt, time, "written", &fields);
        let start = "time=1970-01-01T00:00:00Z event=written file=/tmp/a.profile condition=\"cpu < 20%\" name=\"a=\\\"";
        assert!(logfmt.starts_with(start) && logfmt.ends_with(" x=\"\""), "{logfmt}");
        let json = line(LogFormat::Json, time, "written", &fields);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&read["event"], &read["condition"]), (&"written".into(), &"cpu < 20%".into()));
        assert!(!logfmt.contains(['\u{1b}', '\n']) && !json.contains(['\u{1b}', '\n']), "{logfmt}\n{json}");
    }
}
