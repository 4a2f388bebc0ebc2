//! Encodes windows for Grafana Pyroscope: requests of the Connect method `push.v1.PusherService/Push`.
//!
//! Each message has one series with one pprof profile: that of an event of a resource. Pyroscope stores the series of a
//! request one by one and answers with an error if it refuses any of them, so that a request with several could not be sent
//! again without doubling those that it has stored (`PushBatch` in `pkg/distributor/distributor.go` of its sources).
//!
//! A message is the body of a POST to `/push.v1.PusherService/Push` with `content-type: application/proto` and
//! `content-encoding: gzip` (Connect protocol, "Unary-Request").

mod labels;
mod message;
mod series;
#[cfg(test)]
mod tests;

use self::series::Series;
use crate::{Encoded, Window};

/// The path of the method below the URL of Pyroscope.
pub const PUSH_PATH: &str = "/push.v1.PusherService/Push";

/// The limits of the server. The default values are accepted by a server with default settings
/// (`pkg/validation/limits.go` of its sources).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PyroscopeOptions {
    /// Largest profile, bytes before compression. A larger one is split. The server refuses profiles above 4 MiB
    /// (`validation.max-profile-size-bytes`), and those above 2 MiB each time, because they exceed the burst size of its
    /// rate limit (`distributor.ingestion-burst-size-mb`).
    pub max_profile_bytes: usize,
    /// Most stacks in a profile (`validation.max-profile-stacktrace-samples`).
    pub max_samples: usize,
    /// Most frames of a stack. Callers beyond it are left out: the server would leave out the leaf
    /// (`validation.max-profile-stacktrace-depth`).
    pub max_frames: usize,
}

impl Default for PyroscopeOptions {
    fn default() -> Self {
        Self { max_profile_bytes: 1 << 20, max_samples: 16_000, max_frames: 1_000 }
    }
}

/// Encodes a window: at least one message for each event and resource with samples, and more where one would exceed a limit.
///
/// The samples of all messages and [`Encoded::too_large`] are together those of the window. A sample is too large if its
/// stack alone exceeds the limit in bytes.
#[must_use]
pub fn encode(window: &Window, options: &PyroscopeOptions) -> Encoded {
    let mut encoded = Encoded::default();
    for event in window.profile().event_ids() {
        for series in Series::of(window, event, options) {
            series.encode_into(&mut encoded);
        }
    }
    encoded
}
