//! HTTP/1.1 over TLS.

use std::{io, net::TcpListener, path::Path, sync::Arc};

use profiler_agent::delivery::{Delivery, DeliveryLedger};
use tokio_rustls::rustls::{ServerConnection, StreamOwned};

use super::{
    certificate::Certificate,
    message, otlp,
    server::{Reply, Server, ok},
    wait_for, wait_until_settled,
};

fn start(certificate: &Certificate, script: impl FnMut(usize) -> Reply + Send + 'static) -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = Arc::clone(&certificate.config);
    let wrap = move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(connection, stream)) as Box<dyn super::server::ReadWrite>)
    };
    Server::start_on(listener, wrap, script)
}

fn deliver(server: &Server, host: &str, trusted: Option<&Path>) -> Delivery {
    let mut options = otlp(format!("https://{host}:{}", server.address.port()));
    options.ca_file = trusted.map(Path::to_owned);
    let delivery = Delivery::start(options).unwrap();
    delivery.push(message(5, 100_000));
    delivery
}

#[test]
fn a_message_is_sent_over_tls_to_a_host_that_is_resolved() {
    let certificate = Certificate::new("localhost", b"http/1.1");
    let server = start(&certificate, |_| ok());
    let delivery = deliver(&server, "localhost", Some(&certificate.file));
    assert_eq!(wait_until_settled(&delivery).delivered, 5);
    assert_eq!(server.requests()[0].body, message(5, 100_000).messages[0].body);
}

#[test]
fn nothing_is_sent_to_a_server_with_a_wrong_certificate() {
    let (trusted, other) =
        (Certificate::new("localhost", b"http/1.1"), Certificate::new("other", b"http/1.1"));
    let has_failed = |ledger: &DeliveryLedger| ledger.requests > 0;
    for (certificate, trusted) in [
        // Another authority, another name, and no authority that signed it.
        (&trusted, Some(&*other.file)),
        (&other, Some(&*other.file)),
        (&trusted, None),
    ] {
        let server = start(certificate, |_| ok());
        let delivery = deliver(&server, "localhost", trusted);
        wait_for(&delivery, |ledger| has_failed(ledger) && delivery.health().last_error.is_some());
        let error = delivery.health().last_error.unwrap();
        assert!(error.contains("TLS handshake failed") && error.contains("certificate"), "{error}");
        let ledger = delivery.ledger();
        assert_eq!((ledger.queued, ledger.ambiguous, ledger.sent_bytes), (5, 0, 0), "{ledger:?}");
        assert!(server.requests().is_empty());
    }
}
