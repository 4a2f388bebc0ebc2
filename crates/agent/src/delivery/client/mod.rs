//! The client: sends the bodies of messages over one connection, by HTTP or gRPC.

mod connection;
mod counted_stream;
mod endpoint;
mod grpc;
mod headers;
mod messages;
mod resolver;
mod response;
#[cfg(fuzzing)]
mod simulated_response;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::{Buf as _, Bytes};
use http::uri::{self, Scheme};
use http_body_util::Full;
use hyper::{
    Method, Request, Uri,
    header::{self, HeaderValue},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

#[cfg(fuzzing)]
pub use self::simulated_response::check_response;
use self::{
    connection::{Connection, RequestBody},
    counted_stream::{CountedStream, Stream},
    endpoint::{Endpoint, Protocol},
    headers::Headers,
    resolver::Resolver,
    response::{Received, describe},
};
use super::{error::DeliveryError, options::DeliveryOptions, outcome::Outcome, transport::Transport};

/// The time for a response body that only adds to an error text.
const ERROR_BODY_TIME_LIMIT: Duration = Duration::from_secs(1);

/// Sends messages to a backend.
pub(super) struct Client {
    endpoint: Endpoint,
    uri: Uri,
    headers: Headers,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolver: Resolver,
    timeout: Duration,
    written_bytes: Arc<AtomicU64>,
    connection: Option<Connection>,
}

impl Client {
    /// Checks the options, and starts the thread that resolves the host.
    pub(super) fn new(options: &DeliveryOptions) -> Result<Self, DeliveryError> {
        let endpoint = Endpoint::new(&options.destination)?;
        let invalid =
            |reason: String| DeliveryError::InvalidUrl { url: endpoint.authority.to_string(), reason };
        let tls = if endpoint.is_tls {
            let name = ServerName::try_from(endpoint.host.clone())
                .map_err(|error| invalid(format!("its host is not the name of a server: {error}")))?;
            Some((tls::connector(endpoint.protocol, options.ca_file.as_deref())?, name))
        } else {
            None
        };
        let uri = request_uri(&endpoint).map_err(|error| invalid(error.to_string()))?;
        let headers = Headers::new(endpoint.protocol, options)?;
        let resolver = Resolver::start(&endpoint.host, endpoint.port).map_err(DeliveryError::Thread)?;
        let written_bytes = Arc::default();
        let timeout = options.timeout;
        Ok(Self { endpoint, uri, headers, tls, resolver, timeout, written_bytes, connection: None })
    }

    async fn open(&self) -> Result<Connection, String> {
        let tcp = self.open_tcp().await?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(tcp),
            Some((connector, name)) => {
                let handshake = connector.connect(name.clone(), tcp).await;
                Box::new(handshake.map_err(|error| format!("the TLS handshake failed: {error}"))?)
            }
        };
        let stream = CountedStream::new(stream, Arc::clone(&self.written_bytes));
        let connection = match self.endpoint.protocol {
            Protocol::OtlpGrpc => Connection::http2(stream).await,
            Protocol::OtlpHttp | Protocol::Pyroscope => Connection::http1(stream).await,
        };
        connection.map_err(|error| format!("the HTTP handshake failed: {}", describe(&error)))
    }

    /// Connects to the first address that accepts a connection.
    async fn open_tcp(&self) -> Result<TcpStream, String> {
        let addresses = self.resolver.resolve().await?;
        let share = self.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut failures = Vec::new();
        for address in addresses {
            match timeout(share, connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failures.push(format!("{address}: {error}")),
                Err(_) => failures.push(format!("{address}: no response within {share:?}")),
            }
        }
        Err(format!("failed to connect to {}", failures.join(", ")))
    }

    fn request(&mut self, body: Bytes) -> Request<RequestBody> {
        let prefix = match self.endpoint.protocol {
            Protocol::OtlpGrpc => grpc::prefix(&body),
            Protocol::OtlpHttp | Protocol::Pyroscope => Bytes::new(),
        };
        let mut request = Request::new(Full::new(prefix.chain(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.current();
        if self.endpoint.protocol != Protocol::OtlpGrpc
            && let Ok(host) = HeaderValue::from_str(self.endpoint.authority.as_str())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        request
    }

    /// Reads the body where the outcome depends on it, and for a short time where it is part of an error.
    async fn receive(&mut self, request: Request<RequestBody>) -> Result<Received, String> {
        let connection = self.connection.as_mut().ok_or("there is no connection")?;
        let response = connection.send(request).await;
        let response =
            response.map_err(|error| format!("the backend did not respond: {}", describe(&error)))?;
        let (head, body) = response.into_parts();
        let mut received = Received::new(head.status, head.headers);
        let decides = head.status.is_success() && self.endpoint.protocol != Protocol::Pyroscope;
        if decides {
            received.read_body(body).await;
        } else if timeout(ERROR_BODY_TIME_LIMIT, received.read_body(body)).await.is_err() {
            received.cut = Some("the response did not end".to_owned());
        }
        Ok(received)
    }
}

impl Transport for Client {
    async fn connect(&mut self) -> Result<(), String> {
        if let Some(connection) = &mut self.connection
            && connection.is_ready().await
        {
            return Ok(());
        }
        self.connection = None;
        self.connection = Some(self.open().await?);
        Ok(())
    }

    async fn send(&mut self, body: Bytes) -> Result<Outcome, String> {
        let request = self.request(body);
        let received = self.receive(request).await?;
        // A refused request may be half written, and the next one would wait for its rest.
        if received.cut.is_some() || !received.status.is_success() {
            self.close();
        }
        Ok(match self.endpoint.protocol {
            Protocol::OtlpGrpc => grpc::outcome(&received),
            protocol => received.outcome(protocol, SystemTime::now()),
        })
    }

    fn close(&mut self) {
        self.connection = None;
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The path for HTTP/1.1 (RFC 9112, section 3.2.1), the whole URL for HTTP/2 (RFC 9113, section 8.3.1).
fn request_uri(endpoint: &Endpoint) -> Result<Uri, uri::InvalidUriParts> {
    let mut parts = uri::Parts::default();
    parts.path_and_query = Some(endpoint.path.clone());
    if endpoint.protocol == Protocol::OtlpGrpc {
        parts.scheme = Some(if endpoint.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(endpoint.authority.clone());
    }
    Uri::from_parts(parts)
}
