//! Options of a delivery.

use std::{fmt, path::PathBuf, time::Duration};

/// Where messages are sent, and how.
#[derive(Clone)]
pub struct DeliveryOptions {
    /// The backend.
    pub destination: Destination,
    /// Headers of each request: names and values.
    pub headers: Vec<(String, String)>,
    /// The file with the token of the header `Authorization: Bearer`. It is read before each request, because
    /// Kubernetes replaces it from time to time.
    pub bearer_token_file: Option<PathBuf>,
    /// A PEM file of the certificates that are trusted in place of those of Mozilla. It is read at the start.
    pub ca_file: Option<PathBuf>,
    /// Where messages are kept that cannot be sent at once. Without it, they are kept in memory.
    pub spool: Option<SpoolOptions>,
    /// The time limit of a request, with the connection and the response.
    pub timeout: Duration,
}

impl DeliveryOptions {
    /// The time limit of a request by default, that of `OTEL_EXPORTER_OTLP_TIMEOUT`.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends to a backend, without headers and without a spool.
    #[must_use]
    pub fn new(destination: Destination) -> Self {
        Self {
            destination,
            headers: Vec::new(),
            bearer_token_file: None,
            ca_file: None,
            spool: None,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// OTLP by HTTP, for messages of the OTLP encoder.
    OtlpHttp {
        /// `http` or `https`. `/v1development/profiles` is appended if the path is empty or `/`; another path is used as it
        /// is.
        url: String,
    },
    /// OTLP by gRPC, for messages of the OTLP encoder.
    OtlpGrpc {
        /// `http` or `https`, without a path.
        url: String,
    },
    /// Pyroscope's push interface, for messages of the Pyroscope encoder.
    Pyroscope {
        /// `http` or `https`. `/push.v1.PusherService/Push` is appended.
        url: String,
    },
}

/// Where messages are kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The directory. It is created if it does not exist, and made accessible to its owner alone. One process uses it at
    /// a time.
    pub directory: PathBuf,
    /// The limit of its size, in bytes.
    pub max_bytes: u64,
}

/// Headers can be secrets: only their names are printed.
impl fmt::Debug for DeliveryOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("DeliveryOptions")
            .field("destination", &self.destination)
            .field("headers", &names)
            .field("bearer_token_file", &self.bearer_token_file)
            .field("ca_file", &self.ca_file)
            .field("spool", &self.spool)
            .field("timeout", &self.timeout)
            .finish()
    }
}
