//! A connection to the backend, by HTTP/1.1 or HTTP/2.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, buf::Chain};
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::counted_stream::CountedStream;

/// The body of a request: the prefix of gRPC, and a message.
pub(super) type RequestBody = Full<Chain<Bytes, Bytes>>;

/// What is buffered of headers and frames, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection and the tasks that read and write it. They end when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: Sender,
    tasks: Tasks,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

impl Connection {
    pub(super) async fn http1(stream: CountedStream) -> hyper::Result<Self> {
        let tasks = Tasks::default();
        let handshake = http1::Builder::new().max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(stream));
        let (sender, driver) = handshake.await?;
        tasks.spawn(drive(driver));
        Ok(Self { sender: Sender::Http1(sender), tasks })
    }

    pub(super) async fn http2(stream: CountedStream) -> hyper::Result<Self> {
        let tasks = Tasks::default();
        let (sender, driver) = http2::Builder::new(tasks.clone())
            .initial_stream_window_size(BUFFER_BYTES as u32)
            .initial_connection_window_size(BUFFER_BYTES as u32)
            .handshake(TokioIo::new(stream))
            .await?;
        tasks.spawn(drive(driver));
        Ok(Self { sender: Sender::Http2(sender), tasks })
    }

    /// Waits for the end of the last response. Whether another request can be sent.
    pub(super) async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The tasks have the set as well, so it is not dropped with this connection.
        self.tasks.lock().abort_all();
    }
}

/// Requests report the errors of their connection.
async fn drive(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        log::debug!("the connection to the backend ended: {error}");
    }
}

/// The tasks of a connection.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.lock().spawn(task);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(async move {
            task.await;
        });
    }
}
