//! A gRPC server of another implementation than the client.

use std::{
    convert::Infallible,
    future,
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use bytes::{Buf as _, BufMut as _};
use hyper::{HeaderMap, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::{
    Status,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, UnaryService},
};

/// A response, or none.
pub(crate) type Reply = Option<Result<Vec<u8>, Status>>;

/// What the server has read.
pub(crate) type Received = Arc<Mutex<Vec<Call>>>;

/// A call that the server has read.
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// Uncompressed.
    pub(crate) message: Vec<u8>,
}

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
    headers: HeaderMap,
    received: Received,
}

impl UnaryService<Vec<u8>> for Export {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let (path, headers) = (self.path.clone(), self.headers.clone());
        self.received.lock().unwrap().push(Call { path, headers, message: request.into_inner() });
        match self.reply.take() {
            Some(reply) => Box::pin(future::ready(reply.map(tonic::Response::new))),
            None => Box::pin(future::pending()),
        }
    }
}

/// Starts a server, which ends with the test process. `script` gets the index of each request.
pub(crate) fn start(
    tls: Option<TlsAcceptor>,
    script: impl FnMut(usize) -> Reply + Send + 'static,
) -> (u16, Received) {
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
            let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
            let export = Export { reply, path, headers, received: Arc::clone(&received) };
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
