//! The memory, descriptors and CPU time of a process, from outside.

use std::{fs, time::Duration};

use anyhow::Result;

use crate::process;

/// What a process uses.
pub(super) struct Usage {
    pub(super) resident_bytes: u64,
    /// The most since the start.
    pub(super) peak_bytes: u64,
    pub(super) descriptors: usize,
    /// User and system time since the start.
    pub(super) cpu: Duration,
}

impl Usage {
    /// The usage of a running process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        Ok(Self {
            resident_bytes: process::resident_bytes(pid)?,
            peak_bytes: process::peak_bytes(pid)?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            cpu: process::cpu_time(pid)?,
        })
    }
}
