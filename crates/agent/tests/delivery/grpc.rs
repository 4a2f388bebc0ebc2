//! gRPC, to a server of another implementation.

use std::{
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use profiler_agent::{
    Encoded,
    delivery::{Delivery, Destination},
};
use tokio_rustls::TlsAcceptor;
use tonic::Status;

use super::{
    DEADLINE, SHORT_TIMEOUT,
    certificate::Certificate,
    grpc_server::{Call, Reply, start},
    message, options, wait_until_settled,
};

const METHOD: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

fn compressed(samples: u64, text: &[u8]) -> Encoded {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    let mut encoded = message(samples, 0);
    encoded.messages[0].body = encoder.finish().unwrap();
    encoded
}

fn deliver(port: u16, messages: impl IntoIterator<Item = Encoded>) -> Delivery {
    let url = format!("http://127.0.0.1:{port}");
    let mut options = options(Destination::OtlpGrpc { url });
    options.timeout = DEADLINE;
    let delivery = Delivery::start(options).unwrap();
    messages.into_iter().for_each(|message| delivery.push(message));
    delivery
}

fn always(reply: impl Fn() -> Reply + Send + 'static) -> impl FnMut(usize) -> Reply + Send + 'static {
    move |_| reply()
}

#[test]
fn compressed_messages_are_exported() {
    let (port, received) = start(None, always(|| Some(Ok(Vec::new()))));
    let texts = [b"a profile".to_vec(), vec![7; 3 << 20]];
    let delivery = deliver(port, [compressed(5, &texts[0]), compressed(6, &texts[1])]);
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.delivered, ledger.requests, ledger.retries), (11, 2, 0), "{:?}", delivery.health());
    let received = received.lock().unwrap();
    for (Call { path, headers, message }, expected) in received.iter().zip(&texts) {
        let agent = headers["user-agent"].to_str().unwrap();
        assert_eq!((&**path, agent), (METHOD, concat!("profiler/", env!("CARGO_PKG_VERSION"))));
        assert!(message == expected, "the texts differ");
    }
}

#[test]
fn a_large_message_is_exported_over_tls() {
    let certificate = Certificate::new("localhost", b"h2");
    let tls = TlsAcceptor::from(Arc::clone(&certificate.config));
    let (port, received) = start(Some(tls), always(|| Some(Ok(Vec::new()))));
    let mut options = options(Destination::OtlpGrpc { url: format!("https://localhost:{port}") });
    options.ca_file = Some(certificate.file.clone());
    let delivery = Delivery::start(options).unwrap();
    // Above the window of HTTP/2.
    let text = message(1, 1 << 20).messages[0].body.clone();
    delivery.push(compressed(5, &text));
    assert_eq!(wait_until_settled(&delivery).delivered, 5, "{:?}", delivery.health());
    assert!(received.lock().unwrap()[0].message == text, "the texts differ");
}

/// A field of a protobuf message whose length needs one byte.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// `google.rpc.Status` with `RetryInfo { retry_delay: 1 s }`.
fn retry_info() -> Vec<u8> {
    let delay = field(1, &[0x08, 0x01]);
    let name = field(1, b"type.googleapis.com/google.rpc.RetryInfo");
    field(3, &[name, field(2, &delay)].concat())
}

#[test]
fn an_unavailable_server_gets_the_message_again_after_the_delay() {
    for status in [Status::unavailable, Status::resource_exhausted] {
        let (port, received) = start(None, move |index| {
            let status = Status::with_details(status("").code(), "later", retry_info().into());
            Some(if index == 0 { Err(status) } else { Ok(Vec::new()) })
        });
        let start = Instant::now();
        let delivery = deliver(port, [compressed(5, b"a profile")]);
        let ledger = wait_until_settled(&delivery);
        assert_eq!((ledger.delivered, ledger.retries), (5, 1));
        assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(received.lock().unwrap().len(), 2);
        let error = delivery.health().last_error.unwrap();
        assert!(error.contains("later"), "{error}");
    }
}

#[test]
fn a_message_that_the_server_refuses_is_not_repeated() {
    let statuses =
        [Status::invalid_argument, Status::resource_exhausted, Status::unauthenticated, Status::internal];
    for status in statuses {
        let (port, received) = start(None, always(move || Some(Err(status("no, 100 %")))));
        let delivery = deliver(port, [compressed(5, b"a profile")]);
        let ledger = wait_until_settled(&delivery);
        assert_eq!((ledger.dropped.rejected, ledger.requests), (5, 1), "{:?}", delivery.health());
        assert_eq!(received.lock().unwrap().len(), 1);
        let error = delivery.health().last_error.unwrap();
        assert!(error.ends_with(": no, 100 %"), "{error}");
    }
}

#[test]
fn a_message_above_the_limit_of_the_server_is_too_large() {
    let (port, _) = start(None, always(|| Some(Ok(Vec::new()))));
    let delivery = deliver(port, [compressed(5, &vec![7; 5 << 20])]);
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.dropped.too_large, ledger.requests), (5, 1), "{:?}", delivery.health());
}

#[test]
fn a_partial_success_is_not_repeated() {
    // partial_success { rejected_profiles: 2 }
    let (port, _) = start(None, always(|| Some(Ok(field(1, &[0x08, 0x02])))));
    let delivery = deliver(port, [compressed(5, b"a profile")]);
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.ambiguous, ledger.rejected_profiles, ledger.requests), (5, 2, 1));
}

#[test]
fn a_call_without_a_response_is_ambiguous() {
    let (port, received) = start(None, |index| if index == 0 { None } else { Some(Ok(Vec::new())) });
    let url = format!("http://127.0.0.1:{port}");
    let mut options = options(Destination::OtlpGrpc { url });
    options.timeout = SHORT_TIMEOUT;
    let delivery = Delivery::start(options).unwrap();
    delivery.push(compressed(5, b"a profile"));
    delivery.push(compressed(6, b"another profile"));
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.ambiguous, ledger.delivered), (5, 6));
    assert_eq!(received.lock().unwrap().len(), 2);
}
