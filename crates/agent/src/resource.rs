//! Resources: what a backend shows as one source of samples.

use std::collections::BTreeMap;

/// A source of samples: a container, or the processes of one executable outside of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// Attributes of OpenTelemetry's semantic conventions (<https://opentelemetry.io/docs/specs/semconv/resource/>):
    /// `service.name`, `container.id`, `k8s.pod.name`. Never one whose value differs from process to process.
    pub attributes: BTreeMap<String, String>,
}
