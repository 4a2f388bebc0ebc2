//! Encodes windows for the backend and hands them to the delivery.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use profiler::sandbox;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::error::{AccountError, AgentError};
use crate::{
    Encoded, Window,
    delivery::{Delivery, DeliveryLedger, DeliveryOptions, Destination},
    otlp::{self, OtlpOptions},
    pyroscope::{self, PyroscopeOptions},
    selection,
};

/// The longest time for which the end waits for the backend. What it does not take stays in the spool.
const MAX_END_TIME: Duration = Duration::from_secs(5);

/// The encoding of a backend.
#[derive(Debug)]
enum Encoder {
    Otlp(OtlpOptions),
    Pyroscope(PyroscopeOptions),
}

/// An encoder and a delivery.
pub(super) struct Sender {
    encoder: Encoder,
    delivery: Arc<Delivery>,
}

/// The requests of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Their number.
    pub messages: usize,
    /// The bytes of their bodies.
    pub bytes: usize,
    /// Samples that are in none of them, because they exceed a limit of the backend; with their weight.
    pub too_large: u64,
}

impl Sender {
    /// Starts the delivery. With `is_confined`, its threads have the least rights.
    pub(super) fn start(options: DeliveryOptions, is_confined: bool) -> Result<Self, AgentError> {
        let encoder = match options.destination {
            Destination::Pyroscope { .. } => Encoder::Pyroscope(PyroscopeOptions::default()),
            Destination::OtlpHttp { .. } | Destination::OtlpGrpc { .. } => {
                Encoder::Otlp(OtlpOptions::default())
            }
        };
        let spool = options.spool.as_ref().map(|spool| open_spool(&spool.directory)).transpose()?;
        let delivery = if is_confined {
            let written: Vec<_> = spool.iter().map(|directory| directory.as_fd()).collect();
            sandbox::start_confined(&written, || Delivery::start(options))??
        } else {
            Delivery::start(options)?
        };
        Ok(Self { encoder, delivery: Arc::new(delivery) })
    }

    /// The delivery, for its account.
    pub(super) fn delivery(&self) -> Arc<Delivery> {
        Arc::clone(&self.delivery)
    }

    /// Sends a window. Does not wait for the backend.
    ///
    /// # Errors
    /// The encoder's account differs from that of the window.
    pub(super) fn send(&self, window: &Window) -> Result<Sent, AccountError> {
        let encoded = match &self.encoder {
            Encoder::Otlp(options) => otlp::encode(window, options),
            Encoder::Pyroscope(options) => pyroscope::encode(window, options),
        };
        let Encoded { messages, too_large } = &encoded;
        let samples = selection::sample_count(window.profile());
        let sent = Sent {
            messages: messages.len(),
            bytes: messages.iter().map(|message| message.body.len()).sum(),
            too_large: *too_large,
        };
        let encoded_samples = messages.iter().map(|message| message.samples).sum::<u64>() + too_large;
        self.delivery.push(encoded);
        if encoded_samples != samples {
            return Err(AccountError { window: samples, requests: encoded_samples });
        }
        Ok(sent)
    }

    /// Waits a short time for the backend, and ends the delivery. Returns its account, unless it is still in use.
    pub(super) fn stop(self) -> Option<DeliveryLedger> {
        Arc::into_inner(self.delivery).map(|delivery| delivery.stop(MAX_END_TIME))
    }
}

/// Opens the directory of the spool, which is created for this user alone where it does not exist.
fn open_spool(path: &Path) -> Result<OwnedFd, AgentError> {
    open_or_create(path).map_err(|source| AgentError::SpoolDirectory { path: path.to_owned(), source })
}

fn open_or_create(path: &Path) -> io::Result<OwnedFd> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match mkdirat(CWD, path, Mode::RWXU).map_err(io::Error::from) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}
