//! Opens perf events (perf_event_open(2)): the timer that triggers samples, and sideband events.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use aya_obj::generated::{
    PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_SET_BPF, PERF_FLAG_FD_CLOEXEC,
    perf_event_attr,
    perf_event_sample_format::PERF_SAMPLE_TIME,
    perf_hw_id::PERF_COUNT_HW_CPU_CYCLES,
    perf_sw_ids::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY},
    perf_type_id::{PERF_TYPE_HARDWARE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE},
};

use super::bpf_link::{UprobePlace, Uprobes};

/// `enum perf_event_read_format` of `include/uapi/linux/perf_event.h`: the enabled time follows the count.
const PERF_FORMAT_TOTAL_TIME_ENABLED: u64 = 1;

/// What an event counts: `enum perf_type_id` and the number of the event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventType {
    Software(u64),
    Hardware(u64),
    Raw(u64),
}

impl EventType {
    /// The time of a CPU, nanoseconds.
    pub(crate) const CPU_CLOCK: Self = Self::Software(PERF_COUNT_SW_CPU_CLOCK as u64);

    fn attributes(self) -> perf_event_attr {
        let (event_type, config) = match self {
            Self::Software(number) => (PERF_TYPE_SOFTWARE, number),
            Self::Hardware(number) => (PERF_TYPE_HARDWARE, number),
            Self::Raw(number) => (PERF_TYPE_RAW, number),
        };
        event_attributes(event_type as u32, config)
    }
}

/// An event on one CPU that a BPF program samples, for every task on it.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens the event, disabled. The program runs at every `period`th occurrence.
    pub(crate) fn open(cpu: u32, event_type: EventType, period: u64) -> io::Result<Self> {
        let mut attributes = event_type.attributes();
        attributes.__bindgen_anon_1.sample_period = period;
        attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED;
        attributes.set_disabled(1);
        Ok(Self { fd: open_on_cpu(&mut attributes, cpu)? })
    }

    /// Attaches `program`, and enables the event.
    pub(crate) fn start(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
        self.control(PERF_EVENT_IOC_ENABLE, 0)
    }

    /// The time for which the event was enabled, nanoseconds. It does not advance any more once its CPU has been
    /// offline.
    pub(crate) fn enabled_ns(&self) -> io::Result<u64> {
        const WORD: usize = size_of::<u64>();
        let mut words = [[0; WORD]; 2];
        let bytes = rustix::io::read(&self.fd, words.as_flattened_mut())?;
        if bytes != 2 * WORD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [_count, enabled_ns] = words.map(u64::from_ne_bytes);
        Ok(enabled_ns)
    }

    /// Disables the event.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_DISABLE, 0)
    }

    fn control(&self, request: u32, argument: RawFd) -> io::Result<()> {
        // SAFETY: the descriptor is open, and these requests take an integer.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request.into(), argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Attaches a program to places in a file by perf events, for kernels without a BPF link for it. The program runs for all
/// processes on all CPUs, until the results are closed (perf_event_open(2), "uprobe").
pub(crate) fn attach_uprobes(program: BorrowedFd<'_>, uprobes: &Uprobes<'_>) -> io::Result<Vec<OwnedFd>> {
    const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";
    let event_type = std::fs::read_to_string(TYPE)?.trim().parse().map_err(io::Error::other)?;
    uprobes.places.iter().map(|place| attach_uprobe(program, event_type, uprobes, place)).collect()
}

fn attach_uprobe(
    program: BorrowedFd<'_>,
    event_type: u32,
    uprobes: &Uprobes<'_>,
    place: &UprobePlace,
) -> io::Result<OwnedFd> {
    /// `retprobe` and `ref_ctr_offset` of `/sys/bus/event_source/devices/uprobe/format`: bit 0, and bits 32 to 63.
    const COUNTER_SHIFT: u32 = 32;
    let counter_offset = u32::try_from(place.counter_offset)
        .map_err(|_| io::Error::other("the counter of the probe is beyond the first 4 GiB of the file"))?;
    let config = (u64::from(counter_offset) << COUNTER_SHIFT) | u64::from(uprobes.is_return);
    let mut attributes = event_attributes(event_type, config);
    attributes.__bindgen_anon_3.config1 = uprobes.path.as_ptr() as u64;
    attributes.__bindgen_anon_4.config2 = place.offset;
    let event = PerfEvent { fd: open_on_cpu(&mut attributes, 0)? };
    event.start(program)?;
    Ok(event.fd)
}

/// Opens the sideband event of one CPU: mmap of executable memory, comm, exec, fork and exit of every task on it. Each
/// record has its time (`CLOCK_MONOTONIC`) in its last eight bytes.
///
/// The reader is woken when `wakeup_bytes` are pending.
pub(crate) fn open_sideband(cpu: u32, wakeup_bytes: u32) -> io::Result<OwnedFd> {
    let mut attributes = event_attributes(PERF_TYPE_SOFTWARE as u32, PERF_COUNT_SW_DUMMY as u64);
    attributes.sample_type = PERF_SAMPLE_TIME as u64;
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

/// Whether a hardware cycle counter can be opened. Most virtual machines have none.
pub(crate) fn has_cycle_counter() -> bool {
    let mut attributes = EventType::Hardware(PERF_COUNT_HW_CPU_CYCLES as u64).attributes();
    attributes.set_disabled(1);
    open_on_cpu(&mut attributes, 0).is_ok()
}

fn event_attributes(event_type: u32, config: u64) -> perf_event_attr {
    // SAFETY: all fields are integers and unions of integers, for which zeros are valid.
    let mut attributes: perf_event_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attributes.type_ = event_type;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.config = config;
    attributes
}

fn open_on_cpu(attributes: &mut perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
    const ANY_TASK: libc::pid_t = -1;
    const NO_GROUP: RawFd = -1;
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (attributes, flags) = (&raw mut *attributes, u64::from(PERF_FLAG_FD_CLOEXEC));
    // SAFETY: the attributes are live, writable and carry their own size.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, ANY_TASK, cpu, NO_GROUP, flags) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
