//! Name resolution on a thread of its own.
//!
//! `getaddrinfo` blocks for as long as name servers do not respond. The thread is started before the process confines itself,
//! and a request that takes too long holds up nothing but the connection that waits for it.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::mpsc::{self, SyncSender, TrySendError},
    thread,
};

use tokio::sync::oneshot;

/// Addresses that are tried for one connection.
const MAX_ADDRESSES: usize = 4;

/// Finds the addresses of a host.
#[derive(Debug)]
pub(super) enum Resolver {
    /// The host is an address.
    Address(SocketAddr),
    /// Asks the thread.
    Thread(SyncSender<Request>),
}

/// Where the thread sends what it finds.
type Request = oneshot::Sender<io::Result<Vec<SocketAddr>>>;

impl Resolver {
    pub(super) fn start(host: &str, port: u16) -> io::Result<Self> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self::Address(SocketAddr::new(address, port)));
        }
        let host = host.to_owned();
        Self::start_thread(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
    }

    fn start_thread(look_up: impl Fn() -> io::Result<Vec<SocketAddr>> + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel::<Request>(1);
        let run = move || {
            while let Ok(request) = receiver.recv() {
                // A connection that no longer waits does not need them.
                let _ = request.send(look_up());
            }
        };
        // Never joined: it ends with the lookup that it is in.
        thread::Builder::new().name("resolver".to_owned()).spawn(run)?;
        Ok(Self::Thread(sender))
    }

    /// The addresses that the host has now. An error says why there is no address.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let requests = match self {
            Self::Address(address) => return Ok(vec![*address]),
            Self::Thread(requests) => requests,
        };
        let (sender, receiver) = oneshot::channel();
        requests.try_send(sender).map_err(|error| match error {
            TrySendError::Full(_) => "the name servers do not respond".to_owned(),
            TrySendError::Disconnected(_) => "the thread that resolves names has ended".to_owned(),
        })?;
        let found = receiver.await.map_err(|_| "the thread that resolves names has ended".to_owned())?;
        let mut addresses = found.map_err(|error| format!("failed to resolve the host: {error}"))?;
        addresses.truncate(MAX_ADDRESSES);
        if addresses.is_empty() {
            return Err("failed to resolve the host: it has no address".to_owned());
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_name_server_that_does_not_respond_blocks_no_other_work() {
        let (respond, responses) = mpsc::channel();
        let resolver = Resolver::start_thread(move || {
            responses.recv().map_err(io::Error::other)?;
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 9))])
        })
        .unwrap();
        let limit = Duration::from_millis(20);
        assert!(timeout(limit, resolver.resolve()).await.is_err());
        // The first request is in the thread or in the channel, so one more fits at most.
        let mut refused = 0;
        for _ in 0..3 {
            refused += u32::from(matches!(timeout(limit, resolver.resolve()).await, Ok(Err(_))));
        }
        assert!(refused >= 1);
        for _ in 0..3 {
            respond.send(()).unwrap();
        }
        let found = loop {
            match resolver.resolve().await {
                Ok(found) => break found,
                Err(reason) => assert!(reason.contains("do not respond"), "{reason}"),
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 9))]);
    }

    #[tokio::test]
    async fn an_address_needs_no_thread_and_a_name_is_resolved() {
        let resolver = Resolver::start("::1", 7).unwrap();
        assert!(matches!(resolver, Resolver::Address(_)));
        assert_eq!(resolver.resolve().await.unwrap(), ["[::1]:7".parse().unwrap()]);
        let resolver = Resolver::start("localhost", 7).unwrap();
        assert!(resolver.resolve().await.unwrap().iter().all(|address| address.ip().is_loopback()));
    }

    #[tokio::test]
    async fn a_host_without_addresses_is_an_error() {
        let resolver = Resolver::start_thread(|| Ok(Vec::new())).unwrap();
        assert!(resolver.resolve().await.unwrap_err().contains("no address"));
        let resolver = Resolver::start_thread(|| Err(io::Error::other("no such host"))).unwrap();
        assert!(resolver.resolve().await.unwrap_err().contains("no such host"));
    }
}
