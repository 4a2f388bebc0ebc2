//! Events that are sampled at their occurrences, and not by time: software events, hardware events, tracepoints, system calls,
//! probes.

use std::{num::NonZeroU64, path::PathBuf, str::FromStr};

use profiler_common::event::SystemCallPlace;

use crate::{event_condition::EventCondition, system_calls::SystemCall};

/// The field of the exits of system calls that has their durations, nanoseconds.
pub(crate) const DURATION: &str = "duration";

/// The name of [`CountedEvent::system_call_time`].
const SYSTEM_CALL_TIME: &str = "syscall-time";

/// The raw tracepoints of all system calls.
const SYSTEM_CALL_ENTRY: &str = "sys_enter";
const SYSTEM_CALL_EXIT: &str = "sys_exit";

/// An event that is sampled at its occurrences: each, or [every](Self::every) Nth.
///
/// Names are those of perf-list(1): software events such as `page-faults`, hardware events such as `cache-misses`, raw
/// hardware events such as `r1a8`, tracepoints such as `sched:sched_switch`, and system calls of 64-bit programs such as
/// `syscalls:sys_enter_read` and `syscalls:sys_exit_read`. `uprobe:FILE:FUNCTION` is a call of a function of a file,
/// `uprobe:FILE:FUNCTION+OFFSET` an instruction of it, `uretprobe:FILE:FUNCTION` its return; `usdt:FILE:PROVIDER:NAME` is a static
/// probe of a file. A file is a path in the root directory of the first target process, or in that of the profiler where the
/// target is no process; or the name of a library that the process has loaded: `libc` for `libc.so.6`. `syscall-time` is
/// [`system_call_time`](Self::system_call_time).
///
/// Samples of `raw_syscalls:sys_enter`, `raw_syscalls:sys_exit` and `syscall-time` have the name of the system call as their leaf:
/// `[read]`.
///
/// ```
/// use std::num::NonZeroU64;
/// use profiler_sampler::CountedEvent;
///
/// let faults: CountedEvent = "page-faults".parse()?;
/// assert_eq!(faults.period().get(), 1);
/// assert_eq!(faults.every(NonZeroU64::new(100).unwrap()).period().get(), 100);
/// assert!("page-fault".parse::<CountedEvent>().is_err());
/// # Ok::<(), profiler_sampler::UnknownEvent>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "capture",
    serde(into = "crate::capture::NamedEvent", try_from = "crate::capture::NamedEvent")
)]
pub struct CountedEvent {
    name: String,
    source: EventSource,
    period: NonZeroU64,
    weight: Option<String>,
    condition: Option<EventCondition>,
}

/// Where the kernel counts an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// `PERF_TYPE_SOFTWARE`, with a number of `enum perf_sw_ids`.
    Software(u64),
    /// `PERF_TYPE_HARDWARE`, with a number of `enum perf_hw_id`.
    Hardware(u64),
    /// `PERF_TYPE_RAW`, with the number that the CPU's manual gives the event.
    Raw(u64),
    /// The tracepoint of this name.
    Tracepoint(String),
    /// The entries or exits of a system call.
    SystemCall(SystemCall),
    /// A place in the code of a file.
    Probe(Probe),
    /// A static probe of a file (USDT).
    StaticProbe(StaticProbeName),
}

/// A place in the code of a file: where a function begins, some bytes behind it, or where it returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// A path, or the name of a library.
    pub file: PathBuf,
    /// The function.
    pub function: String,
    /// The bytes between the start of the function and the place.
    pub offset_bytes: u64,
    /// Whether the place is where the function returns.
    pub is_return: bool,
}

/// The name of a static probe, which can have several places in the code of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaticProbeName {
    /// A path, or the name of a library.
    pub file: PathBuf,
    /// The provider.
    pub provider: String,
    /// The name among those of the provider.
    pub name: String,
}

/// Software events: `enum perf_sw_ids` of `include/uapi/linux/perf_event.h`.
pub(crate) const SOFTWARE: &[(&str, u64)] = &[
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
];

/// Hardware events: `enum perf_hw_id` of the same file.
pub(crate) const HARDWARE: &[(&str, u64)] = &[
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// The period of hardware events, which occur some 10^9 times a second: about a thousand samples. It is a prime number, so
/// that samples do not align with loops.
const HARDWARE_PERIOD: NonZeroU64 = NonZeroU64::MIN.saturating_add(1_000_002);

/// A text that names no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not an event (known: {known}; rNNN for a raw hardware event, syscall-time, SUBSYSTEM:NAME for a tracepoint, syscalls:sys_enter_NAME, syscalls:sys_exit_NAME, uprobe:FILE:FUNCTION[+OFFSET], uretprobe:FILE:FUNCTION, usdt:FILE:PROVIDER:NAME)", known = known_names())]
pub struct UnknownEvent {
    name: String,
}

impl CountedEvent {
    /// The time that system calls take: `raw_syscalls:sys_exit`, [weighted by](Self::weighted_by) `duration`, with the name
    /// `syscall-time`.
    #[must_use]
    pub fn system_call_time() -> Self {
        Self {
            name: SYSTEM_CALL_TIME.to_owned(),
            source: EventSource::Tracepoint(SYSTEM_CALL_EXIT.to_owned()),
            period: NonZeroU64::MIN,
            weight: Some(DURATION.to_owned()),
            condition: None,
        }
    }

    /// The event, sampled at every `period`th occurrence.
    #[must_use]
    pub fn every(self, period: NonZeroU64) -> Self {
        Self { period, ..self }
    }

    /// The event, whose values are those of a field instead of a number of occurrences. A negative value is 0.
    ///
    /// The fields of a tracepoint are its arguments, and members of the structures to which they point: `prev.pid`. Those of a
    /// `uprobe` and of a system call are `arg1` to `arg6`, that of a `uretprobe` is `ret`, and the exit of a system call has both,
    /// numbers of 64 bits, and `duration`, the nanoseconds since its entry: its values are times. Those of a static
    /// probe are `arg1` and so on, of the sizes that its notes state. Other events have no field.
    #[must_use]
    pub fn weighted_by(self, field: &str) -> Self {
        Self { weight: Some(field.to_owned()), ..self }
    }

    /// The event, only where a field compares with a number so: `bytes > 4096`.
    #[must_use]
    pub fn only_where(self, condition: EventCondition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// The field whose values are summed.
    #[must_use]
    pub fn weight(&self) -> Option<&str> {
        self.weight.as_deref()
    }

    /// Whether the weight is a time, nanoseconds.
    pub(crate) fn is_weighted_by_time(&self) -> bool {
        self.is_system_call_exit() && self.weight() == Some(DURATION)
    }

    /// Whether the duration of a system call is needed.
    pub(crate) fn needs_duration(&self) -> bool {
        let is_condition = self.condition().is_some_and(|condition| condition.field == DURATION);
        self.is_weighted_by_time() || (self.is_system_call_exit() && is_condition)
    }

    /// Whether it is the exit of a system call, or of all.
    pub(crate) fn is_system_call_exit(&self) -> bool {
        match self.source() {
            EventSource::SystemCall(call) => call.is_exit,
            _ => self.system_call_place() == SystemCallPlace::Exit,
        }
    }

    /// Where in a system call it is, if it is an event of all system calls: then samples have the name of theirs.
    pub(crate) fn system_call_place(&self) -> SystemCallPlace {
        match self.source() {
            EventSource::Tracepoint(name) if name == SYSTEM_CALL_ENTRY => SystemCallPlace::Entry,
            EventSource::Tracepoint(name) if name == SYSTEM_CALL_EXIT => SystemCallPlace::Exit,
            _ => SystemCallPlace::None,
        }
    }

    /// The name in a profile: also that of the weight.
    pub(crate) fn name_with_weight(&self) -> String {
        match self.weight() {
            Some(DURATION) if self.name == SYSTEM_CALL_TIME => self.name.clone(),
            Some(field) => format!("{} {field}", self.name),
            None => self.name.clone(),
        }
    }

    pub(crate) fn condition(&self) -> Option<&EventCondition> {
        self.condition.as_ref()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The occurrences for which a sample stands.
    #[must_use]
    pub fn period(&self) -> NonZeroU64 {
        self.period
    }

    /// Where the kernel counts it.
    #[must_use]
    pub fn source(&self) -> &EventSource {
        &self.source
    }
}

impl FromStr for CountedEvent {
    type Err = UnknownEvent;

    fn from_str(name: &str) -> Result<Self, UnknownEvent> {
        if name == SYSTEM_CALL_TIME {
            return Ok(Self::system_call_time());
        }
        let source = source(name).ok_or_else(|| UnknownEvent { name: name.to_owned() })?;
        let period = match source {
            EventSource::Hardware(_) | EventSource::Raw(_) => HARDWARE_PERIOD,
            _ => NonZeroU64::MIN,
        };
        Ok(Self { name: name.to_owned(), source, period, weight: None, condition: None })
    }
}

fn source(name: &str) -> Option<EventSource> {
    let of =
        |table: &[(&str, u64)]| table.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    if let Some(number) = of(SOFTWARE) {
        return Some(EventSource::Software(number));
    }
    if let Some(number) = of(HARDWARE) {
        return Some(EventSource::Hardware(number));
    }
    if let Some(place) = name.strip_prefix("uprobe:") {
        return probe(place, false).map(EventSource::Probe);
    }
    if let Some(place) = name.strip_prefix("uretprobe:") {
        return probe(place, true).map(EventSource::Probe);
    }
    if let Some(place) = name.strip_prefix("usdt:") {
        return static_probe(place).map(EventSource::StaticProbe);
    }
    if let Some((subsystem, tracepoint)) = name.split_once(':') {
        return self::tracepoint(subsystem, tracepoint);
    }
    let digits = name.strip_prefix('r')?;
    u64::from_str_radix(digits, 16).ok().map(EventSource::Raw)
}

/// A tracepoint, or a system call, whose tracepoint no BPF program can be attached to.
fn tracepoint(subsystem: &str, name: &str) -> Option<EventSource> {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match subsystem {
        "syscalls" => SystemCall::of_tracepoint(name).map(EventSource::SystemCall),
        _ if is_name(subsystem) && is_name(name) => Some(EventSource::Tracepoint(name.to_owned())),
        _ => None,
    }
}

/// Parses `FILE:FUNCTION` or `FILE:FUNCTION+OFFSET`.
fn probe(place: &str, is_return: bool) -> Option<Probe> {
    let (file, function) = place.rsplit_once(':')?;
    let (function, offset_bytes) = match function.split_once('+') {
        Some(_) if is_return => return None,
        Some((function, offset)) => {
            let hexadecimal = offset.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
            (function, hexadecimal.unwrap_or_else(|| offset.parse()).ok()?)
        }
        None => (function, 0),
    };
    let is_complete = is_path_or_library(file) && !function.is_empty();
    is_complete.then(|| Probe { file: file.into(), function: function.to_owned(), offset_bytes, is_return })
}

/// Parses `FILE:PROVIDER:NAME`.
fn static_probe(place: &str) -> Option<StaticProbeName> {
    let (place, name) = place.rsplit_once(':')?;
    let (file, provider) = place.rsplit_once(':')?;
    let is_complete = is_path_or_library(file) && !provider.is_empty() && !name.is_empty();
    is_complete.then(|| StaticProbeName {
        file: file.into(),
        provider: provider.to_owned(),
        name: name.to_owned(),
    })
}

fn is_path_or_library(file: &str) -> bool {
    file.starts_with('/') || (!file.is_empty() && !file.contains('/'))
}

/// The names that have no other meaning.
fn known_names() -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut last = None;
    for (name, number) in SOFTWARE.iter().chain(HARDWARE) {
        if last.replace(*number) != Some(*number) {
            names.push(name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_perf_are_events() {
        let source = |name: &str| name.parse::<CountedEvent>().unwrap().source;
        assert_eq!(source("page-faults"), EventSource::Software(2));
        assert_eq!(source("cs"), source("context-switches"));
        assert_eq!(source("cache-misses"), EventSource::Hardware(3));
        assert_eq!(source("r1a8"), EventSource::Raw(0x1a8));
        assert_eq!(source("sched:sched_switch"), EventSource::Tracepoint("sched_switch".to_owned()));
    }

    #[test]
    fn a_probe_has_its_file_and_its_function() {
        let source = |name: &str| name.parse::<CountedEvent>().map(|event| event.source).ok();
        let probe = |function: &str, offset_bytes, is_return| {
            let (file, function) = ("/lib/a.so".into(), function.to_owned());
            Some(EventSource::Probe(Probe { file, function, offset_bytes, is_return }))
        };
        assert_eq!(source("uprobe:/lib/a.so:work"), probe("work", 0, false));
        assert_eq!(source("uprobe:/lib/a.so:work+0x1f"), probe("work", 31, false));
        assert_eq!(source("uretprobe:/lib/a.so:work"), probe("work", 0, true));
        assert!(source("uprobe:libc:malloc").is_some());
        for wrong in [
            "uprobe:./a.so:work",
            "uprobe::work",
            "uprobe:/lib/a.so:",
            "uprobe:/a",
            "uretprobe:/a:f+1",
            "uprobe:/a:f+x",
        ] {
            assert_eq!(source(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_static_probe_has_its_file_its_provider_and_its_name() {
        let source = |name: &str| name.parse::<CountedEvent>().map(|event| event.source).ok();
        let (provider, name) = ("app".to_owned(), "start".to_owned());
        let expected = StaticProbeName { file: "/lib/a:b.so".into(), provider, name };
        assert_eq!(source("usdt:/lib/a:b.so:app:start"), Some(EventSource::StaticProbe(expected)));
        assert!(source("usdt:libc:libc:setjmp").is_some());
        for wrong in ["usdt:/lib/a.so:app:", "usdt:/lib/a.so::start", "usdt::app:start", "usdt:app:start"] {
            assert_eq!(source(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn system_calls_are_known_by_their_names() {
        let source = |name: &str| name.parse::<CountedEvent>().map(|event| event.source).ok();
        let read = SystemCall { number: 0, is_exit: true };
        assert_eq!(source("syscalls:sys_exit_read"), Some(EventSource::SystemCall(read)));
        assert_eq!(source("syscalls:sys_enter_no_such_call"), None);
    }

    #[test]
    fn durations_of_system_calls_are_times() {
        let event = |name: &str| name.parse::<CountedEvent>().unwrap();
        let time = event("syscall-time");
        assert!(time.is_weighted_by_time() && time.needs_duration());
        assert_eq!(
            (time.name_with_weight().as_str(), time.source()),
            ("syscall-time", &source("raw_syscalls:sys_exit").unwrap())
        );
        let bytes = time.weighted_by("ret");
        assert!(!bytes.is_weighted_by_time() && !bytes.needs_duration());
        assert_eq!(bytes.name_with_weight(), "syscall-time ret");
        let reads = event("syscalls:sys_exit_read");
        assert!(reads.clone().weighted_by("duration").is_weighted_by_time());
        let long_reads = reads.only_where("duration > 1000".parse().unwrap());
        assert!(long_reads.needs_duration() && !long_reads.is_weighted_by_time());
        for other in ["syscalls:sys_enter_read", "raw_syscalls:sys_enter", "sched:sched_switch"] {
            assert!(!event(other).weighted_by("duration").needs_duration(), "{other}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_known_ones() {
        for name in ["", "page", "rxyz", "r", "sched:", ":a", "sched:../x", "a:b:c"] {
            let error = name.parse::<CountedEvent>().unwrap_err().to_string();
            assert!(error.contains("page-faults, context-switches") && error.contains("rNNN"), "{error}");
        }
    }

    #[test]
    fn only_hardware_events_have_a_period_by_default() {
        let period = |name: &str| name.parse::<CountedEvent>().unwrap().period().get();
        assert_eq!((period("major-faults"), period("sched:sched_switch")), (1, 1));
        assert_eq!((period("cycles"), period("r1")), (1_000_003, 1_000_003));
    }
}
