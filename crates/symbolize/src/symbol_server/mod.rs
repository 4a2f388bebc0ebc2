//! Downloads debug files from symbol servers (debuginfod and SSQP) into a cache, when the user enables it.
//!
//! A separate thread downloads a file when the first address in its module is symbolized. Sampling and symbolizing never
//! wait for it. Only the end of a session waits for pending downloads, for a limited time.

mod cache;
mod cache_directories;
mod download;
#[cfg(feature = "symbol-server")]
mod http_client;
mod requests;
mod server;
mod transport;

use std::{io, sync::Arc, thread, time::Instant};

use profiler_elf_symbols::BuildId;

pub use self::{
    cache::Cache,
    cache_directories::CacheDirectories,
    requests::{Download, FetchStatus},
    server::{Server, ServerProtocol},
    transport::{Response, Transport, TransportError},
};
use self::{
    download::Downloader,
    requests::{Request, Requests},
};
use profiler_processes::tenants::Tenant;

/// Requests debug files from symbol servers. Dropping it stops the download thread.
#[derive(Debug)]
pub struct SymbolServers {
    requests: Arc<Requests>,
}

/// The HTTP client; `None` without the feature `symbol-server`.
pub fn transport() -> Option<Box<dyn Transport>> {
    #[cfg(feature = "symbol-server")]
    return Some(Box::new(http_client::HttpClient::new()));
    #[cfg(not(feature = "symbol-server"))]
    None
}

impl SymbolServers {
    /// Starts the download thread. It tries the servers in this order and stores debug files in `cache`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(servers: Vec<Server>, transport: Box<dyn Transport>, cache: Cache) -> io::Result<Self> {
        let requests = Arc::new(Requests::default());
        let downloader = Downloader::new(servers, transport, cache, Arc::clone(&requests));
        thread::Builder::new().name("symbols".to_owned()).spawn(move || downloader.run())?;
        Ok(Self { requests })
    }

    /// Requests the debug file with a build id for a tenant, and returns the status of the request. `file_name` is that of
    /// the module.
    pub(crate) fn request(&self, id: &BuildId, file_name: &str, tenant: Tenant) -> FetchStatus {
        self.requests.enqueue(Request { id: id.clone(), file_name: file_name.to_owned(), tenant })
    }

    /// Waits until no request is pending, as long as `may_wait` returns true and until the deadline at most.
    pub fn wait(&self, deadline: Instant, may_wait: &dyn Fn() -> bool) {
        self.requests.wait(deadline, may_wait);
    }

    /// The progress of the current download.
    pub fn download(&self) -> Option<Download> {
        self.requests.download()
    }
}

impl Drop for SymbolServers {
    fn drop(&mut self) {
        self.requests.close();
    }
}
