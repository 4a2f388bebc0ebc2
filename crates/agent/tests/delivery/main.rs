//! Deliveries over real connections, to servers that fail in every way.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

mod certificate;
mod grpc;
mod grpc_server;
mod http;
mod processes;
mod server;
mod tls;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use profiler_agent::{
    Encoded, Message,
    delivery::{Delivery, DeliveryLedger, DeliveryOptions, Destination, SpoolOptions},
};

/// The time limit of what a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time limit of requests that get no response, far more than one with a response takes.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);

fn options(destination: Destination) -> DeliveryOptions {
    DeliveryOptions {
        destination,
        headers: Vec::new(),
        bearer_token_file: None,
        ca_file: None,
        spool: None,
        timeout: DEADLINE,
    }
}

fn otlp(url: impl Into<String>) -> DeliveryOptions {
    options(Destination::OtlpHttp { url: url.into() })
}

fn spool(directory: &Path) -> Option<SpoolOptions> {
    Some(SpoolOptions { directory: directory.to_owned(), max_bytes: 64 << 20 })
}

/// A message of now with a body that no buffer compresses.
fn message(samples: u64, body_bytes: usize) -> Encoded {
    let mut random = fastrand::Rng::with_seed(samples);
    let body = std::iter::repeat_with(|| random.u8(..)).take(body_bytes).collect();
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let started_unix_ns = u64::try_from(since_1970.as_nanos()).unwrap();
    Encoded { messages: vec![Message { started_unix_ns, samples, body }], too_large: 0 }
}

/// The ledger once a condition holds. It is exact at any time before.
fn wait_for(delivery: &Delivery, mut condition: impl FnMut(&DeliveryLedger) -> bool) -> DeliveryLedger {
    let start = Instant::now();
    loop {
        let ledger = delivery.ledger();
        assert!(ledger.is_exact(), "{ledger:?}");
        if condition(&ledger) {
            return ledger;
        }
        assert!(start.elapsed() < DEADLINE, "{ledger:?} {:?}", delivery.health());
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// The ledger when nothing is queued or spooled.
fn wait_until_settled(delivery: &Delivery) -> DeliveryLedger {
    wait_for(delivery, |ledger| ledger.queued + ledger.spooled == 0)
}
