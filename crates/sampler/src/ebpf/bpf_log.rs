//! Prints the log lines of the BPF programs (feature `bpf-log`), which aya-log writes into a ring buffer.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use aya_log::EbpfLogger;

use crate::error::{Error, ErrorKind, Operation, Result};

/// The object that `cargo xtask build-ebpf --log` builds. It is read at run time and not embedded, so that the feature
/// compiles without the eBPF toolchain.
const OBJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bpf-log/profiler.bpf.o");

/// Reads the object with log lines.
///
/// # Errors
/// The object was not built.
pub(super) fn read_object() -> Result<Vec<u8>> {
    fs::read(OBJECT).map_err(|error| {
        let message = format!("failed to read `{OBJECT}`: run `cargo xtask build-ebpf --log`");
        Error::with_source(ErrorKind::Io, message, error)
    })
}

/// The log of the BPF programs, printed by the logger of this process.
pub(super) struct BpfLog(EbpfLogger<&'static dyn log::Log>);

impl BpfLog {
    /// Opens the log ring buffer of a loaded program.
    ///
    /// # Errors
    /// The kernel gives access to programs and maps by id only with `CAP_SYS_ADMIN`.
    pub(super) fn open(program: BorrowedFd<'_>) -> Result<Self> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            let message = "failed to open the log of the BPF programs: it needs CAP_SYS_ADMIN, which the sandbox gives up; run with --no-sandbox";
            Error::with_source(ErrorKind::Unsupported, message, error)
        };
        EbpfLogger::init_from_id(program_id(program)?).map(Self).map_err(|error| failed(error.into()))
    }

    /// Prints all pending lines.
    pub(super) fn print(&mut self) {
        self.0.flush();
    }
}

impl AsFd for BpfLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The id of a loaded program, from the `prog_id` line of its `fdinfo` (proc_pid_fdinfo(5)).
fn program_id(program: BorrowedFd<'_>) -> Result<u32> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let info = fs::read_to_string(&path)
        .map_err(|error| Error::from_io(Operation::ReadProcess, format!("failed to read `{path}`"), error))?;
    let id = info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
    id.ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("no program id in `{path}`")))
}
