//! gRPC, to a server of another implementation.

use std::{
    convert::Infallible,
    future,
    io::Write as _,
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::{Buf as _, BufMut as _};
use flate2::{Compression, write::GzEncoder};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use profiler_agent::{
    Encoded,
    delivery::{Delivery, Destination},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::{
    Status,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, UnaryService},
};

use super::{SHORT_TIMEOUT, message, options, tls::Certificate, wait_until_settled};

const METHOD: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// A response, or none.
type Reply = Option<Result<Vec<u8>, Status>>;

/// What the server has read: the path, the user agent and the message.
type Received = Arc<Mutex<Vec<(String, String, Vec<u8>)>>>;

/// Messages as bytes.
#[derive(Clone)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

/// The method `Export`.
struct Export {
    reply: Reply,
    path: String,
    agent: String,
    received: Received,
}

impl UnaryService<Vec<u8>> for Export {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let received = (self.path.clone(), self.agent.clone(), request.into_inner());
        self.received.lock().unwrap().push(received);
        match self.reply.take() {
            Some(reply) => Box::pin(future::ready(reply.map(tonic::Response::new))),
            None => Box::pin(future::pending()),
        }
    }
}

/// Starts a server, which ends with the test process. `script` gets the index of each request.
fn start(tls: Option<TlsAcceptor>, script: impl FnMut(usize) -> Reply + Send + 'static) -> (u16, Received) {
    let received = Received::default();
    let (send_port, port) = mpsc::channel();
    let server = serve(tls, Arc::new(Mutex::new(script)), Arc::clone(&received), send_port);
    thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(server);
    });
    (port.recv().unwrap(), received)
}

async fn serve(
    tls: Option<TlsAcceptor>,
    script: Arc<Mutex<dyn FnMut(usize) -> Reply + Send>>,
    received: Received,
    port: mpsc::Sender<u16>,
) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    port.send(listener.local_addr().unwrap().port()).unwrap();
    let count = Arc::new(Mutex::new(0));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (script, received, count) = (Arc::clone(&script), Arc::clone(&received), Arc::clone(&count));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let mut count = count.lock().unwrap();
            let reply = (script.lock().unwrap())(*count);
            *count += 1;
            let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
            let path = request.uri().path().to_owned();
            let export = Export { reply, path, agent, received: Arc::clone(&received) };
            async move {
                let mut grpc = Grpc::new(Raw).accept_compressed(CompressionEncoding::Gzip);
                Ok::<_, Infallible>(grpc.unary(export, request).await)
            }
        });
        let tls = tls.clone();
        tokio::spawn(async move {
            let server = http2::Builder::new(TokioExecutor::new());
            // The client may close the connection at any time.
            let _ = match tls {
                None => server.serve_connection(TokioIo::<TcpStream>::new(stream), service).await,
                Some(tls) => {
                    let stream = tls.accept(stream).await.unwrap();
                    server.serve_connection(TokioIo::new(stream), service).await
                }
            };
        });
    }
}

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
    options.timeout = Duration::from_secs(5);
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
    for ((path, agent, text), expected) in received.iter().zip(&texts) {
        assert_eq!((&**path, &**agent), (METHOD, concat!("profiler/", env!("CARGO_PKG_VERSION"))));
        assert!(text == expected, "the texts differ");
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
    assert!(received.lock().unwrap()[0].2 == text, "the texts differ");
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
