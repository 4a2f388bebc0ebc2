//! Writes metrics in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>, "Text-based format").

use std::fmt::{self, Write as _};

use super::{Metric, MetricKind, MetricValue};

/// The media type of the format.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of all metrics.
pub(super) fn write(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for metric in metrics {
        // Writing to a String cannot fail.
        let _ = write_metric(&mut text, metric);
    }
    text
}

fn write_metric(to: &mut String, Metric { name, help, kind, values }: &Metric) -> fmt::Result {
    let kind = match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
    };
    writeln!(to, "# HELP {name} {}", escaped(help, false))?;
    writeln!(to, "# TYPE {name} {kind}")?;
    values.iter().try_for_each(|value| write_value(to, name, value))
}

fn write_value(to: &mut String, name: &str, MetricValue { labels, value }: &MetricValue) -> fmt::Result {
    let pairs: Vec<_> =
        labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text, true))).collect();
    let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
    writeln!(to, "{name}{labels} {value}")
}

/// A text without line feeds. Quotation marks are escaped in labels alone.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}
