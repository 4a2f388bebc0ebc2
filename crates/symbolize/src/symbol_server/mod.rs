//! Debug files from symbol servers, when the user allows it: asked for as modules are seen, downloaded on a thread of
//! its own, and kept.
//!
//! Nothing of this makes sampling or naming wait, but the end of a session, for a moment.

mod cache;
#[cfg(feature = "symbol-server")]
mod client;
mod download;
mod http;
mod places;
mod requests;
mod server;

use profiler_elf_symbols::BuildId;
use std::{io, sync::Arc, thread, time::Instant};

pub use self::{
    cache::Cache,
    places::CacheDirectories,
    requests::Fetch,
    server::{SegmentLayout, Server},
};
use self::{download::Downloader, http::Transport, requests::Requests};

/// The servers that may be asked. Dropped, nothing more is asked for.
#[derive(Debug)]
pub struct SymbolServers {
    requests: Arc<Requests>,
}

/// The debug file that is on its way.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// The file that lacks symbols, without its directory. The target chose the name.
    pub file_name: String,
    /// How much of its debug file there is.
    pub received_bytes: u64,
    /// How much there will be, when the server says so.
    pub total_bytes: Option<u64>,
}

/// What asks servers over the network; nothing does without the feature `symbol-server`.
pub fn transport() -> Option<Box<dyn Transport>> {
    #[cfg(feature = "symbol-server")]
    return Some(Box::new(client::Client::new()));
    #[cfg(not(feature = "symbol-server"))]
    None
}

impl SymbolServers {
    /// Asks servers in this order, by `transport`, and keeps what they have in `cache`.
    pub fn start(servers: Vec<Server>, transport: Box<dyn Transport>, cache: Cache) -> io::Result<Self> {
        let requests = Arc::new(Requests::default());
        let downloader = Downloader::new(servers, transport, cache, Arc::clone(&requests));
        thread::Builder::new().name("symbols".to_owned()).spawn(move || downloader.run())?;
        Ok(Self { requests })
    }

    /// Asks for the debug file of a build id, once, for the module of that name.
    pub fn ask(&self, id: &BuildId, file_name: &str) -> Fetch {
        self.requests.ask(id, file_name)
    }

    /// Waits until nothing is on its way any more, as long as `may_wait` and until a time.
    pub fn wait(&self, until: Instant, may_wait: &dyn Fn() -> bool) {
        self.requests.wait(until, may_wait);
    }

    /// What is downloaded right now.
    pub fn download(&self) -> Option<Download> {
        self.requests.download()
    }
}

impl Drop for SymbolServers {
    fn drop(&mut self) {
        self.requests.end();
    }
}
