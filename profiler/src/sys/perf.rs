//! perf_event_open(2): the timer that triggers samples, and the side band that tells of mappings and forks.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use perf_event_open_sys as sys;
use sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};

/// A cpu-clock event on one CPU, for every task there.
#[derive(Debug)]
pub(crate) struct TimerEvent {
    fd: OwnedFd,
}

impl TimerEvent {
    /// Opens the event, not yet counting.
    pub(crate) fn open(cpu: u32, frequency_hz: u64) -> io::Result<Self> {
        let mut attributes = software_event(PERF_COUNT_SW_CPU_CLOCK.into());
        attributes.__bindgen_anon_1.sample_freq = frequency_hz;
        attributes.set_freq(1);
        attributes.set_disabled(1);
        Ok(Self { fd: open_on_cpu(&mut attributes, cpu)? })
    }

    /// Runs `program` at each tick from now on.
    pub(crate) fn start(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: both descriptors are open.
        check(unsafe { sys::ioctls::SET_BPF(fd, program.as_raw_fd().unsigned_abs()) })?;
        // SAFETY: the descriptor is open.
        check(unsafe { sys::ioctls::ENABLE(fd, 0) })
    }

    /// How long the event has counted, nanoseconds. It stands still for good once its CPU has been offline.
    pub(crate) fn counted_ns(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }

    /// No tick after this.
    pub(crate) fn stop(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        check(unsafe { sys::ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }
}

/// Opens the side band of one CPU: executable mappings, names, execs, forks and exits of every task there,
/// each with its time (`CLOCK_MONOTONIC`) in the last eight bytes of its record.
///
/// `wakeup_bytes` are how many must wait before a reader is woken.
pub(crate) fn open_side_band(cpu: u32, wakeup_bytes: u32) -> io::Result<OwnedFd> {
    let mut attributes = software_event(PERF_COUNT_SW_DUMMY.into());
    attributes.sample_type = PERF_SAMPLE_TIME.into();
    attributes.set_sample_id_all(1);
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = wakeup_bytes;
    open_on_cpu(&mut attributes, cpu)
}

/// Whether a hardware cycle counter can be opened here: virtual machines mostly have none.
pub(crate) fn has_cycle_counter() -> bool {
    let mut attributes = software_event(sys::bindings::PERF_COUNT_HW_CPU_CYCLES.into());
    attributes.type_ = sys::bindings::PERF_TYPE_HARDWARE;
    attributes.set_disabled(1);
    open_on_cpu(&mut attributes, 0).is_ok()
}

fn software_event(config: u64) -> perf_event_attr {
    let mut attributes = perf_event_attr::default();
    attributes.type_ = PERF_TYPE_SOFTWARE;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.config = config;
    attributes
}

fn open_on_cpu(attributes: &mut perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    const ANY_TASK: libc::pid_t = -1;
    const NO_GROUP: i32 = -1;
    // SAFETY: the attributes are live, writable and carry their own size.
    let fd =
        unsafe { sys::perf_event_open(attributes, ANY_TASK, cpu, NO_GROUP, PERF_FLAG_FD_CLOEXEC.into()) };
    check(fd)?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for TimerEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
