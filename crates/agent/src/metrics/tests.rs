//! Tests of the metrics' text and of the server, over real connections.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use super::*;

fn status(is_ready: bool) -> Status {
    Status {
        health: Ok(()),
        readiness: if is_ready { Ok(()) } else { Err("no delivery yet".to_owned()) },
        metrics: vec![
            Metric::counters("a_total", "Samples by \\ outcome.", "outcome", &[("sent", 7), ("q\"\n", 0)]),
            Metric::gauge("b_bytes", "Bytes.", 1.5),
        ],
    }
}

fn start() -> (Server, Arc<AtomicBool>) {
    let is_ready = Arc::new(AtomicBool::new(false));
    let source = Arc::clone(&is_ready);
    let server =
        Server::start(([127, 0, 0, 1], 0).into(), move || status(source.load(Ordering::Acquire))).unwrap();
    (server, is_ready)
}

/// The response to the bytes of a request.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
}

#[test]
fn metrics_are_text_with_escaped_labels() {
    let (server, _) = start();
    let response = get(server.address(), "/metrics");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{response}");
    let expected = "\r\n\r\n# HELP a_total Samples by \\\\ outcome.\n# TYPE a_total counter\n\
                    a_total{outcome=\"sent\"} 7\na_total{outcome=\"q\\\"\\n\"} 0\n\
                    # HELP b_bytes Bytes.\n# TYPE b_bytes gauge\nb_bytes 1.5\n";
    assert!(response.ends_with(expected), "{response}");
}

#[test]
fn checks_have_the_status_of_the_moment() {
    let (server, is_ready) = start();
    assert!(get(server.address(), "/healthz").starts_with("HTTP/1.1 200 "));
    let response = get(server.address(), "/readyz");
    assert!(response.starts_with("HTTP/1.1 503 ") && response.ends_with("no delivery yet\n"), "{response}");
    is_ready.store(true, Ordering::Release);
    assert!(get(server.address(), "/readyz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn other_requests_are_refused() {
    let (server, _) = start();
    let address = server.address();
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    let response = exchange(address, b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 405 ") && response.contains("allow: GET, HEAD"), "{response}");
    let response = exchange(address, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\n"), "{response}");
    assert!(!exchange(address, b"\x16\x03\x01 no HTTP\r\n\r\n").contains(" 200 "));
    assert!(get(address, &format!("/{}", "a".repeat(16 << 10))).starts_with("HTTP/1.1 4"));
}

#[test]
fn silent_clients_do_not_keep_others_out_beyond_their_time() {
    let (server, _) = start();
    let start = Instant::now();
    // All connections that are served at a time.
    let silent: Vec<_> = (0..15).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert!(get(server.address(), "/healthz").starts_with("HTTP/1.1 200 "));
    // A server with open connections stops without waiting for their end.
    drop(server);
    assert!(start.elapsed() < server::MAX_CONNECTION_TIME, "{:?}", start.elapsed());
    drop(silent);
}

#[test]
fn an_address_in_use_is_an_error() {
    let (server, _) = start();
    assert!(Server::start(server.address(), || status(true)).is_err());
}
