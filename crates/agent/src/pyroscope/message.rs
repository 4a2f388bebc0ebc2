//! The messages of Pyroscope's `push.v1.PusherService` (`api/push/v1/push.proto` and `api/types/v1/types.proto` of
//! <https://github.com/grafana/pyroscope>), without annotations, which the server ignores.

use prost::Message;

/// The request of `Push`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<RawProfileSeries>,
}

/// Profiles with common labels.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A profile. Its id, which the server writes to its log and replaces, is left out.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct RawSample {
    /// pprof, compressed by gzip.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
}
