//! Confines the process of a session in the stages of its start.

use rustix::thread::CapabilitySet;

use super::{
    failed, rights,
    system_calls::{self, Job, Network},
};
use crate::{error::Result, settings::Settings};

/// Whether a session confines its process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxSettings {
    pub(crate) is_wanted: bool,
    /// Whether other threads may use the network.
    pub(crate) network: bool,
}

/// The sandbox of a session. Does nothing if the settings do not want one.
pub(crate) struct SessionSandbox(Option<Confinement>);

/// What a session needs, and its sandbox leaves.
struct Confinement {
    rights: CapabilitySet,
    writes_files: bool,
    network: Network,
}

impl SessionSandbox {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(settings.sandbox.is_wanted.then(|| Confinement::of_session(settings)))
    }

    /// Whether the sandbox drops rights.
    pub(crate) fn confines(&self) -> bool {
        self.0.is_some()
    }

    /// Drops the rights that the session does not need, in the calling thread and the threads that it starts.
    pub(crate) fn reduce_rights(&self) -> Result<()> {
        let Some(Confinement { rights, writes_files, .. }) = self.0 else { return Ok(()) };
        rights::reduce(rights, writes_files)
            .map_err(|error| failed("reduce the rights of the session", error))
    }

    /// Refuses the system calls that the running session does not need, in all threads of the process.
    pub(crate) fn filter_system_calls(&self) -> Result<()> {
        let Some(Confinement { network, .. }) = self.0 else { return Ok(()) };
        let job = Job::Session { network };
        system_calls::filter(job).map_err(|error| failed("install the system call filter", error))
    }
}

impl Confinement {
    fn of_session(settings: &Settings) -> Self {
        let Settings { capture, dotnet, names, .. } = settings;
        let uses_servers = !names.symbol_servers.is_empty();
        let network = match (settings.sandbox.network, uses_servers) {
            (true, _) => Network::ClientAndServer,
            (false, true) => Network::Client,
            (false, false) => Network::None,
        };
        Self {
            rights: rights::of_session(settings),
            // A capture, the symbol cache, or the removal of a perf map.
            writes_files: capture.is_some() || dotnet.perf_map || uses_servers,
            network,
        }
    }
}
