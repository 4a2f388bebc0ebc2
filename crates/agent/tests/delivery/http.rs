//! HTTP/1.1 without TLS.

use std::{
    fs,
    net::TcpListener,
    time::{Duration, Instant},
};

use profiler_agent::delivery::{Delivery, DeliveryOptions, Destination, MAX_QUEUE_BYTES};

use super::{
    SHORT_TIMEOUT, message, options, otlp,
    server::{Reply, Server, ok, response, status},
    spool, wait_for, wait_until_settled,
};

/// A script: these replies, and success from then on.
fn replies(replies: impl IntoIterator<Item = Reply>) -> impl FnMut(usize) -> Reply + Send + 'static {
    let replies: Vec<_> = replies.into_iter().collect();
    move |index| replies.get(index).cloned().unwrap_or_else(ok)
}

#[test]
fn a_request_of_otlp_is_as_specified() {
    let server = Server::start(replies([]));
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let mut options = otlp(server.url());
    options.headers = vec![("X-Scope-OrgID".to_owned(), "tenant".to_owned())];
    options.bearer_token_file = Some(token);
    let delivery = Delivery::start(options).unwrap();
    let (first, second) = (message(5, 1000), message(6, 2000));
    let bodies = [first.messages[0].body.clone(), second.messages[0].body.clone()];
    delivery.push(first);
    delivery.push(second);
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.sampled, ledger.delivered, ledger.requests, ledger.retries), (11, 11, 2, 0));
    assert!(ledger.sent_bytes > 3000, "{ledger:?}");
    assert!(delivery.health().last_success_unix_seconds.is_some());
    let requests = server.requests();
    assert_eq!(requests.iter().map(|request| &request.body[..]).collect::<Vec<_>>(), bodies);
    for request in &requests {
        assert!(request.head.starts_with("POST /v1development/profiles HTTP/1.1\r\n"), "{}", request.head);
        let host = server.address.to_string();
        for (name, value) in [
            ("host", &*host),
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "gzip"),
            ("user-agent", concat!("profiler/", env!("CARGO_PKG_VERSION"))),
            ("authorization", "Bearer secret"),
            ("x-scope-orgid", "tenant"),
        ] {
            assert_eq!(request.header(name), Some(value), "{}", request.head);
        }
    }
}

#[test]
fn messages_in_the_queue_are_sent_over_one_connection() {
    let server = Server::start(replies([]));
    let delivery = Delivery::start(otlp(server.url())).unwrap();
    let mut all = message(1, 1000);
    for samples in 2..=5 {
        all.messages.extend(message(samples, 1000).messages);
    }
    delivery.push(all);
    assert_eq!(wait_until_settled(&delivery).delivered, 15);
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_request_of_pyroscope_is_as_specified() {
    let server = Server::start(replies([]));
    let delivery = Delivery::start(options(Destination::Pyroscope { url: server.url() })).unwrap();
    delivery.push(message(5, 1000));
    assert_eq!(wait_until_settled(&delivery).delivered, 5);
    let requests = server.requests();
    let head = &requests[0].head;
    assert!(head.starts_with("POST /push.v1.PusherService/Push HTTP/1.1\r\n"), "{head}");
    assert_eq!(requests[0].header("content-type"), Some("application/proto"));
    assert_eq!(requests[0].header("content-encoding"), Some("gzip"));
}

#[test]
fn what_is_too_old_for_pyroscope_is_not_sent() {
    let server = Server::start(replies([]));
    let delivery = Delivery::start(options(Destination::Pyroscope { url: server.url() })).unwrap();
    let mut old = message(5, 1000);
    old.messages[0].started_unix_ns -= 3_601_000_000_000;
    delivery.push(old);
    assert_eq!(wait_until_settled(&delivery).dropped.too_old, 5);
    assert!(server.requests().is_empty());
}

#[test]
fn a_message_is_repeated_after_the_time_that_the_backend_asks_for() {
    let busy = response("429 Too Many Requests", "Retry-After: 1\r\n", b"");
    let server = Server::start(replies([Reply::Bytes(busy), status("503 Service Unavailable")]));
    let delivery = Delivery::start(otlp(server.url())).unwrap();
    let start = Instant::now();
    delivery.push(message(5, 1000));
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.delivered, ledger.requests, ledger.retries), (5, 3, 2));
    assert!(start.elapsed() >= Duration::from_secs(1) + Duration::from_millis(1000));
    let error = delivery.health().last_error.unwrap();
    assert!(error.contains("503 Service Unavailable"), "{error}");
}

#[test]
fn a_backend_that_is_not_there_gets_the_messages_later() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let directory = tempfile::tempdir().unwrap();
    for spool in [None, spool(directory.path())] {
        let mut options = otlp(format!("http://{address}"));
        options.spool = spool;
        let delivery = Delivery::start(options).unwrap();
        delivery.push(message(5, 1000));
        let ledger = wait_for(&delivery, |ledger| ledger.requests > 0 && ledger.queued + ledger.spooled == 5);
        assert_eq!(ledger.sampled, 5);
        wait_for(&delivery, |_| delivery.health().last_error.is_some());
        let error = delivery.health().last_error.unwrap();
        assert!(error.contains("failed to connect") && error.contains("refused"), "{error}");
        let _ = delivery.stop(Duration::ZERO);
    }
    let listener = TcpListener::bind(address).unwrap();
    let server = Server::start_on(listener, |stream| Ok(Box::new(stream)), replies([]));
    let mut options = otlp(server.url());
    options.spool = spool(directory.path());
    let delivery = Delivery::start(options).unwrap();
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.recovered, ledger.delivered), (5, 5));
}

#[test]
fn a_request_without_a_response_is_ambiguous_and_not_repeated() {
    let cut = Reply::BytesAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut".to_vec());
    let cut_head = Reply::BytesAndClose(b"HTTP/1.1 200 O".to_vec());
    let endless = Reply::Endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec());
    let large = Reply::Bytes(response("200 OK", "", &vec![b'x'; 65_537]));
    let no_http = Reply::BytesAndClose(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    let garbage = Reply::Bytes(response("200 OK", "Content-Type: application/x-protobuf\r\n", b"\xff"));
    for (reply, reason) in [
        (Reply::Hang, "did not respond within 3s"),
        (cut, "ended early"),
        (cut_head, "did not respond"),
        (endless, "longer than 65536 bytes"),
        (large, "longer than 65536 bytes"),
        (no_http, "did not respond"),
        (garbage, "no ExportProfilesServiceResponse"),
    ] {
        let text = format!("{reply:.60?}");
        let server = Server::start(replies([reply]));
        let mut options = otlp(server.url());
        options.timeout = SHORT_TIMEOUT;
        let delivery = Delivery::start(options).unwrap();
        delivery.push(message(5, 1000));
        let ledger = wait_until_settled(&delivery);
        assert_eq!((ledger.ambiguous, ledger.delivered, ledger.requests), (5, 0, 1), "{text}");
        assert_eq!(server.requests().len(), 1, "{text}");
        let error = delivery.health().last_error.unwrap();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn the_delivery_goes_on_after_a_request_without_a_response() {
    let server = Server::start(replies([Reply::Hang]));
    let mut options = otlp(server.url());
    options.timeout = SHORT_TIMEOUT;
    let delivery = Delivery::start(options).unwrap();
    delivery.push(message(5, 1000));
    delivery.push(message(6, 1000));
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.ambiguous, ledger.delivered), (5, 6));
}

#[test]
fn the_status_of_an_error_counts_whatever_its_body_is() {
    let endless =
        |status: &str| Reply::Endless(format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n").into());
    let cut = Reply::BytesAndClose(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nno".to_vec());
    let moved = Reply::Bytes(response("308 Permanent Redirect", "Location: http://127.0.0.1:1/\r\n", b""));
    let early = Reply::WithoutReading(response("413 Payload Too Large", "", b""));
    let script = [endless("400 Bad Request"), cut, moved, early, status("413 Payload Too Large")];
    let server = Server::start(replies(script));
    let delivery = Delivery::start(otlp(server.url())).unwrap();
    for samples in [1, 2, 4, 8, 16, 32] {
        delivery.push(message(samples, 800_000));
    }
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.dropped.rejected, ledger.dropped.too_large, ledger.delivered), (7, 24, 32));
    assert_eq!((ledger.requests, ledger.retries), (6, 0));
}

#[test]
fn rejected_profiles_of_a_partial_success_are_counted_and_nothing_is_repeated() {
    // partial_success { rejected_profiles: 2, error_message: "old" }
    let body = b"\x0a\x07\x08\x02\x12\x03old";
    let partial = response("200 OK", "Content-Type: application/x-protobuf\r\n", body);
    let server = Server::start(replies([Reply::Bytes(partial)]));
    let delivery = Delivery::start(otlp(server.url())).unwrap();
    delivery.push(message(5, 1000));
    let ledger = wait_until_settled(&delivery);
    assert_eq!((ledger.ambiguous, ledger.rejected_profiles, ledger.requests), (5, 2, 1));
    assert_eq!(delivery.health().last_error.as_deref(), Some("2 profiles were rejected: old"));
}

#[test]
fn a_server_that_reads_slowly_gets_the_message() {
    let Reply::Bytes(response) = ok() else { panic!() };
    let server = Server::start(replies([Reply::SlowBytes(response)]));
    let delivery = Delivery::start(otlp(server.url())).unwrap();
    let large = message(5, 2 << 20);
    let body = large.messages[0].body.clone();
    delivery.push(large);
    assert_eq!(wait_until_settled(&delivery).delivered, 5);
    assert!(server.requests()[0].body == body, "the bodies differ");
}

#[test]
fn a_hung_backend_never_delays_a_push() {
    let server = Server::start(|_| Reply::Hang);
    // A request ends after more time than a test has.
    let options = DeliveryOptions { timeout: Duration::from_secs(3600), ..otlp(server.url()) };
    let delivery = Delivery::start(options).unwrap();
    let encoded: Vec<_> = (0..200).map(|samples| message(samples, 100_000)).collect();
    for encoded in encoded {
        delivery.push(encoded);
        let ledger = delivery.ledger();
        assert!(ledger.is_exact() && ledger.queue_bytes <= MAX_QUEUE_BYTES, "{ledger:?}");
    }
    assert!(!delivery.flush(Duration::from_millis(10)));
    let ledger = delivery.stop(Duration::from_millis(10));
    assert!(ledger.is_exact() && ledger.queued == 0, "{ledger:?}");
    assert_eq!(ledger.sampled, 199 * 200 / 2);
    assert_eq!(ledger.sampled, ledger.dropped.outage + ledger.ambiguous);
}
