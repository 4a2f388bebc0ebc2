//! Events that are sampled at their occurrences: the program of each, what it is attached to, and its counts.

use std::{
    collections::HashMap,
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use profiler_common::{
    Config,
    event::{EventConfig, EventCounts},
    names,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    event_fields::EventFields,
    kernel_types::KernelTypes,
    object::{broken, clone_fd, create_map, load_program, map, object_bytes, relocate},
    programs::ProgramLoader,
    system_call_entries::SystemCallEntries,
};
use crate::{
    counted_event::{CountedEvent, EventSource},
    error::{Error, ErrorKind, Operation, Result},
    planned_event::{PlannedEvent, ProbePlace, ProbedFile},
    sys::{
        bpf::{self, ProgramType},
        bpf_link::{self, UprobePlace, Uprobes},
        perf::{self, EventType, PerfEvent},
    },
};

/// The most programs of a static probe, one for each set of operands that its places have for the fields of the event.
const MAX_PROGRAMS_OF_EVENT: usize = 32;

/// The loaded programs of all events. Dropping it detaches those of tracepoints and probes.
#[derive(Debug)]
pub(super) struct CountedEvents {
    programs: Vec<EventProgram>,
    /// For the durations of system calls, if an event needs them.
    entries: Option<SystemCallEntries>,
    attached: Vec<OwnedFd>,
    counts: OwnedFd,
    events: usize,
}

#[derive(Debug)]
struct EventProgram {
    /// The event, with those of its places that this program is for.
    event: PlannedEvent,
    /// The index of the event.
    index: usize,
    program: OwnedFd,
}

impl CountedEvents {
    /// Loads the programs of each event: they differ in their constants.
    pub(super) fn load(events: &[PlannedEvent], loader: &ProgramLoader<'_>) -> Result<Self> {
        let unwinds = loader.can_unwind();
        let mut programs = Vec::new();
        let mut entries = None;
        for (index, planned) in events.iter().enumerate() {
            for (fields, event) in by_fields(planned, loader.context.types)? {
                let config = Config { event: constants(&event.event, index, &fields), ..*loader.config };
                let relocated = RelocatedObject::new(&config, loader.maps)?;
                let program = load(&event, unwinds, &relocated.object)?;
                if entries.is_none() && event.event.needs_duration() {
                    entries = Some(SystemCallEntries::load(&relocated.object, &config, loader.maps)?);
                }
                programs.push(EventProgram { event, index, program });
            }
        }
        let counts = loader.map(names::MAP_EVENT_COUNTS)?;
        Ok(Self { programs, entries, attached: Vec::new(), counts, events: events.len() })
    }

    /// Attaches the programs of tracepoints and probes.
    pub(super) fn start(&mut self) -> Result<()> {
        if let Some(entries) = &self.entries {
            self.attached.extend(entries.start()?);
        }
        for program in &self.programs {
            self.attached.extend(program.attach()?);
        }
        Ok(())
    }

    /// Attaches the programs of a software or hardware event to the event of a CPU.
    pub(super) fn start_on_cpu(&self, index: usize, event: &PerfEvent) -> io::Result<()> {
        let mut programs = self.programs.iter().filter(|program| program.index == index);
        programs.try_for_each(|program| event.start(program.program.as_fd()))
    }

    /// Detaches the programs of tracepoints and probes.
    pub(super) fn stop(&mut self) {
        self.attached.clear();
    }

    /// The occurrences of each event since the start, summed over all CPUs.
    pub(super) fn counts(&self) -> Result<Vec<EventCounts>> {
        let sums = (0..).take(self.events).map(|index| sum_of_event(self.counts.as_fd(), index));
        sums.collect::<io::Result<_>>().map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to read the counts of an event", error)
        })
    }
}

fn sum_of_event(map: BorrowedFd<'_>, index: u32) -> io::Result<EventCounts> {
    const WORDS: usize = size_of::<EventCounts>() / size_of::<u64>();
    let sums = bpf::sums_over_cpus::<WORDS>(map, index)?;
    EventCounts::read_from_bytes(sums.as_bytes()).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// An event with its fields; a static probe as several ones with those of its places that have the same fields.
fn by_fields(planned: &PlannedEvent, types: &KernelTypes) -> Result<Vec<(EventFields, PlannedEvent)>> {
    let PlannedEvent { event, probed } = planned;
    let Some(probed) = probed else { return Ok(vec![(EventFields::of(event, "", types)?, planned.clone())]) };
    let mut groups: Vec<(EventFields, Vec<ProbePlace>)> = Vec::new();
    for place in &probed.places {
        let fields = EventFields::of(event, &place.operands, types)?;
        match groups.iter_mut().find(|(known, _)| *known == fields) {
            Some((_, places)) => places.push(place.clone()),
            None => groups.push((fields, vec![place.clone()])),
        }
    }
    if groups.len() > MAX_PROGRAMS_OF_EVENT {
        let message = format!(
            "the arguments of `{}` are at more than {MAX_PROGRAMS_OF_EVENT} different operands: sample it without --weight and --filter",
            event.name()
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let with_places = |(fields, places)| {
        let probed = Some(ProbedFile { file: Arc::clone(&probed.file), places });
        (fields, PlannedEvent { event: event.clone(), probed })
    };
    Ok(groups.into_iter().map(with_places).collect())
}

/// The constants of the program of an event. The kernel counts the occurrences of software and hardware events, the program
/// those of others.
fn constants(event: &CountedEvent, index: usize, fields: &EventFields) -> EventConfig {
    let period = event.period().get();
    let (occurrences_per_run, runs_per_sample) = match event.source() {
        EventSource::Software(_) | EventSource::Hardware(_) | EventSource::Raw(_) => (period, 1),
        _ => (1, period),
    };
    let EventFields { weight, conditions, ref thread } = *fields;
    EventConfig {
        occurrences_per_run,
        runs_per_sample,
        // At most `MAX_EVENTS`.
        index: index as u32,
        needs_duration: event.needs_duration().into(),
        system_call: event.system_call_place() as u32,
        thread_status: thread.status,
        thread_start_time: thread.start_time,
        reserved: 0,
        weight,
        conditions,
    }
}

/// Loads the program of an event. `unwinds`: the unwinder captures user stacks, else `bpf_get_stack`.
fn load(planned: &PlannedEvent, unwinds: bool, object: &aya_obj::Object) -> Result<OwnedFd> {
    let load = |[unwinding, by_frame_pointer]: [&str; 2], program_type| {
        load_program(object, if unwinds { unwinding } else { by_frame_pointer }, program_type)
    };
    const EVENT: [&str; 2] = [names::PROGRAM_SAMPLE_EVENT, names::PROGRAM_SAMPLE_EVENT_FP];
    const TRACEPOINT: [&str; 2] = [names::PROGRAM_SAMPLE_TRACEPOINT, names::PROGRAM_SAMPLE_TRACEPOINT_FP];
    const PROBE: [&str; 2] = [names::PROGRAM_SAMPLE_PROBE, names::PROGRAM_SAMPLE_PROBE_FP];
    match planned.event.source() {
        EventSource::Tracepoint(_) | EventSource::SystemCall(_) => {
            load(TRACEPOINT, ProgramType::RawTracepoint)
        }
        EventSource::Probe(_) | EventSource::StaticProbe(_) => {
            match load(PROBE, ProgramType::Uprobe { is_multi: true }) {
                // Before Linux 6.6.
                Err(error) if error.kind == ErrorKind::Unsupported => {
                    load(PROBE, ProgramType::Uprobe { is_multi: false })
                }
                program => program,
            }
        }
        _ => load(EVENT, ProgramType::PerfEvent),
    }
}

/// The object with constants of its own.
struct RelocatedObject {
    object: aya_obj::Object,
    /// The maps to which its code refers, until programs are loaded.
    _maps: HashMap<String, OwnedFd>,
}

impl RelocatedObject {
    /// The object with these constants, and with the maps that all programs share.
    fn new(config: &Config, maps: &HashMap<String, OwnedFd>) -> Result<Self> {
        let bytes = object_bytes()?;
        let mut object = aya_obj::Object::parse(AsRef::<[u8]>::as_ref(&bytes)).map_err(broken)?;
        let globals = HashMap::from([(names::GLOBAL_CONFIG, (config.as_bytes(), true))]);
        object.patch_map_data(globals).map_err(broken)?;
        let definitions: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
        let mut own_maps = HashMap::new();
        for (name, definition) in &definitions {
            let is_constants = definition.section_kind() == aya_obj::EbpfSectionKind::Rodata;
            let map = if is_constants { create_map(name, definition)? } else { clone_fd(map(maps, name)?)? };
            own_maps.insert(name.clone(), map);
        }
        relocate(&mut object, &definitions, &own_maps)?;
        Ok(Self { object, _maps: own_maps })
    }
}

impl EventProgram {
    /// Attaches the program of a tracepoint or a probe; closing the results detaches it. Those of other events are attached on
    /// each CPU.
    fn attach(&self) -> Result<Vec<OwnedFd>> {
        let is_return = matches!(self.event.event.source(), EventSource::Probe(probe) if probe.is_return);
        let attached = match (self.event.event.source(), &self.event.probed) {
            (EventSource::Tracepoint(name), _) => self.attach_tracepoint(name),
            (EventSource::SystemCall(call), _) => self.attach_tracepoint(call.raw_tracepoint()),
            (_, Some(probed)) => self.attach_probe(probed, is_return),
            _ => return Ok(Vec::new()),
        };
        attached.map_err(|error| self.attach_error(error))
    }

    fn attach_tracepoint(&self, name: &str) -> io::Result<Vec<OwnedFd>> {
        let name = CString::new(name)?;
        bpf_link::open_raw_tracepoint(&name, self.program.as_fd()).map(|link| vec![link])
    }

    fn attach_probe(&self, probed: &ProbedFile, is_return: bool) -> io::Result<Vec<OwnedFd>> {
        // The kernel opens the path with the rights of this process: that of the open file is the file that was checked.
        let path = CString::new(format!("/proc/self/fd/{}", probed.file.as_raw_fd()))?;
        let place = |place: &ProbePlace| UprobePlace {
            offset: place.offset.0,
            counter_offset: place.semaphore.map_or(0, |semaphore| semaphore.0),
        };
        let places: Vec<_> = probed.places.iter().map(place).collect();
        let uprobes = Uprobes { path: &path, places: &places, is_return };
        match bpf_link::attach_uprobes(self.program.as_fd(), &uprobes) {
            // Before Linux 6.6 perf events attach it, for which Linux 6.16 and later want more rights.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                perf::attach_uprobes(self.program.as_fd(), &uprobes)
            }
            link => link.map(|link| vec![link]),
        }
    }

    fn attach_error(&self, error: io::Error) -> Error {
        let name = self.event.event.name();
        let is_tracepoint = matches!(self.event.event.source(), EventSource::Tracepoint(_));
        if is_tracepoint && error.kind() == io::ErrorKind::NotFound {
            return Error::new(ErrorKind::Unsupported, format!("this kernel has no tracepoint `{name}`"));
        }
        Error::from_io(Operation::LoadProgram, format!("failed to attach to `{name}`"), error)
    }
}

/// Opens a software or hardware event on a CPU, disabled; `None` for other events.
pub(super) fn open_on_cpu(cpu: u32, event: &CountedEvent) -> Option<Result<PerfEvent>> {
    let event_type = match event.source() {
        EventSource::Software(number) => EventType::Software(*number),
        EventSource::Hardware(number) => EventType::Hardware(*number),
        EventSource::Raw(number) => EventType::Raw(*number),
        _ => return None,
    };
    let opened = PerfEvent::open(cpu, event_type, event.period().get());
    Some(opened.map_err(|error| open_error(cpu, event, error)))
}

fn open_error(cpu: u32, event: &CountedEvent, error: io::Error) -> Error {
    let name = event.name();
    let is_hardware = matches!(event.source(), EventSource::Hardware(_) | EventSource::Raw(_));
    match error.raw_os_error() {
        // `perf_event_open(2)`: no PMU has the event.
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) if is_hardware => {
            let message = format!(
                "this machine has no hardware counter for `{name}`, as most virtual machines: CPU samples (-F) \
                 and software events such as page-faults need none"
            );
            Error::with_source(ErrorKind::Unsupported, message, error)
        }
        _ => {
            let message = format!("failed to open the event `{name}` on CPU {cpu}");
            Error::from_io(Operation::OpenPerfEvent, message, error)
        }
    }
}
