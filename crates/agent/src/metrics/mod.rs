//! What an agent says of itself over HTTP: metrics for Prometheus, and checks for Kubernetes.

mod server;
#[cfg(test)]
mod tests;
mod text;

pub use self::server::Server;

/// The state of an agent at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Whether it works, for `/healthz`; else what does not.
    pub health: Result<(), String>,
    /// Whether it samples and delivers, for `/readyz`; else what is missing.
    pub readiness: Result<(), String>,
    /// What `/metrics` shows.
    pub metrics: Vec<Metric>,
}

/// A metric with all its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name, by the rules of Prometheus (<https://prometheus.io/docs/practices/naming/>): with the unit, a counter ends with
    /// `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How values change.
    pub kind: MetricKind,
    /// One value for each combination of labels.
    pub values: Vec<MetricValue>,
}

/// How the values of a metric change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// They increase until the process ends.
    Counter,
    /// They rise and fall.
    Gauge,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricValue {
    /// Names and texts of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// In the unit of the metric's name.
    pub value: f64,
}

impl Metric {
    /// A counter with one value.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::with_values(name, help, MetricKind::Counter, vec![MetricValue { labels: Vec::new(), value }])
    }

    /// A gauge with one value.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::with_values(name, help, MetricKind::Gauge, vec![MetricValue { labels: Vec::new(), value }])
    }

    /// A counter with a value for each text of a label.
    #[must_use]
    pub fn counters(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: &[(&str, u64)],
    ) -> Self {
        let value = |(text, count): &(&str, u64)| MetricValue {
            labels: vec![(label, (*text).to_owned())],
            value: *count as f64,
        };
        Self::with_values(name, help, MetricKind::Counter, values.iter().map(value).collect())
    }

    fn with_values(
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        values: Vec<MetricValue>,
    ) -> Self {
        Self { name, help, kind, values }
    }
}
