//! The HTTP server of `/metrics`, `/healthz` and `/readyz`: few connections at a time, each of them short.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use super::{Status, text};

/// Connections beyond this number wait in the backlog of the listener.
const MAX_CONNECTIONS: usize = 16;

/// The longest time of a connection: one request and its response.
pub(super) const MAX_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// The most bytes of a request's head. hyper accepts no smaller limit.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// The pause after a connection could not be accepted, because this process has too many descriptors.
const PAUSE: Duration = Duration::from_millis(100);

type Source = Arc<dyn Fn() -> Status + Send + Sync>;

/// A running server, with a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on an address; port 0 is a free one. `source` is called for each request and must not block.
    ///
    /// # Errors
    /// The address is in use or not of this machine, or the thread cannot be started.
    pub fn start(
        address: SocketAddr,
        source: impl Fn() -> Status + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = listen(&runtime, address)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, Arc::new(source), stopped);
        let thread =
            thread::Builder::new().name("metrics".to_owned()).spawn(move || runtime.block_on(serving))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address with its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the metrics panicked");
        }
    }
}

fn listen(runtime: &Runtime, address: SocketAddr) -> io::Result<TcpListener> {
    let _context = runtime.enter();
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn serve(listener: TcpListener, source: Source, mut stopped: oneshot::Receiver<()>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = accept(&listener, &connections);
        let accepted = tokio::select! {
            accepted = next => accepted,
            _ = &mut stopped => return,
        };
        match accepted {
            Ok((stream, permit)) => drop(tokio::spawn(respond(stream, Arc::clone(&source), permit))),
            Err(error) => {
                log::warn!("failed to accept a connection to the metrics: {error}");
                if timeout(PAUSE, &mut stopped).await.is_ok() {
                    return;
                }
            }
        }
    }
}

/// Accepts a connection when there are fewer than the limit.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn respond(stream: TcpStream, source: Source, permit: OwnedSemaphorePermit) {
    let service = service_fn(|request| {
        let response = response(&request, &*source);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_CONNECTION_TIME)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(MAX_CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::debug!("a connection to the metrics ended: {error}"),
        Err(_) => log::debug!("a connection to the metrics took too long"),
    }
    drop(permit);
}

fn response(request: &Request<Incoming>, source: &dyn Fn() -> Status) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let mut response = plain(StatusCode::OK, text::write(&source().metrics));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(text::MEDIA_TYPE));
            response
        }
        "/healthz" => check(source().health),
        "/readyz" => check(source().readiness),
        _ => plain(StatusCode::NOT_FOUND, "only /metrics, /healthz and /readyz\n".to_owned()),
    }
}

fn check(outcome: Result<(), String>) -> Response<Full<Bytes>> {
    match outcome {
        Ok(()) => plain(StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
