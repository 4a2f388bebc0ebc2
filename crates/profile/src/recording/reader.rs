//! Reads a recording, up to its end or the first damage.

use std::io::{self, BufReader, Read};

use super::{
    MAGIC, VERSION,
    body::Fields,
    codes::{AT_FREQUENCY, DURATIONS, OCCURRENCES, REAL, SIGNED, SUMS, TEXT, TIMES, UNSIGNED, VariantCode},
    facts::{read_facts, read_partner},
    measurement::{self, HeaderEvent},
    section::{Kind, Section, Sections, Stop},
};
use crate::{
    Attribute, Event, EventField, EventId, FieldValue, Finding, FindingFacts, Frame, FrameId, Header,
    KubernetesNames, Ledger, LockOwner, ManagedThread, ModuleId, OmittedEvents, PollReading, ProcessId,
    Profile, ProfileBuilder, ReadError, RuntimeEvent, Sample, Sampling, SourceLocation, StackId, StringId,
    Symbolization, ThreadId,
};
use profiler_addresses::ElfAddress;

/// The first version in which a finding may have no event.
const VERSION_OF_RUNTIME_EVENTS: u32 = 3;

/// Reads a profile. The first damage ends it; the samples before it are the profile.
pub(super) fn read(from: impl Read) -> Result<Profile, ReadError> {
    let mut from = BufReader::new(from);
    let version = read_version(&mut from)?;
    let mut sections = Sections::new(from);
    let mut reader = Reader { version, ..Reader::default() };
    loop {
        match sections.next() {
            Ok(Section { kind: Some(Kind::End), .. }) => return reader.finish(None),
            Ok(Section { kind: Some(kind), body }) => {
                if reader.decode_section(kind, &mut Fields::new(&body)).is_none() {
                    return reader.finish(Some("a section is inconsistent"));
                }
            }
            Ok(Section { kind: None, .. }) => {}
            Err(Stop::Damaged(what)) => return reader.finish(Some(what)),
            Err(Stop::Unreadable(error)) => return Err(ReadError::Io(error)),
        }
    }
}

/// Reads the version; an error where this crate cannot read it.
fn read_version(from: &mut impl Read) -> Result<u32, ReadError> {
    let mut magic = [0; MAGIC.len()];
    let mut version = [0; 4];
    let read = from.read_exact(&mut magic).and_then(|()| from.read_exact(&mut version));
    match read {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(ReadError::Io(error)),
        Ok(()) if magic == MAGIC => {}
        _ => {
            return Err(ReadError::NotARecording);
        }
    }
    let version = u32::from_le_bytes(version);
    if version > VERSION {
        return Err(ReadError::NewerVersion { version, supported: VERSION });
    }
    Ok(version)
}

/// The tables that were read so far, by index in the file.
#[derive(Debug, Default)]
struct Reader {
    version: u32,
    builder: ProfileBuilder,
    header: Option<Header>,
    ledger: Ledger,
    events: Vec<EventId>,
    findings: Vec<Finding>,
    /// The number of findings that have their facts.
    findings_with_facts: usize,
    strings: Vec<StringId>,
    modules: Vec<ModuleId>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    processes: Vec<ProcessId>,
    threads: Vec<ThreadId>,
}

impl Reader {
    fn finish(self, damage: Option<&str>) -> Result<Profile, ReadError> {
        let Some(mut header) = self.header else {
            return Err(ReadError::NoHeader { damage: damage.unwrap_or("the file is complete").to_owned() });
        };
        header.edits.extend(damage.map(|damage| format!("read from a damaged file ({damage})")));
        let mut profile = self.builder.finish_with(header, self.ledger);
        profile.set_findings(self.findings);
        Ok(profile)
    }

    /// Decodes a section; `None` where its fields are invalid.
    fn decode_section(&mut self, kind: Kind, fields: &mut Fields<'_>) -> Option<()> {
        match kind {
            Kind::Header => {
                let (header, event) = measurement::read_header(fields)?;
                if let Some(HeaderEvent { name, frequency_hz }) = event {
                    self.builder.event(Event::at_frequency(name, frequency_hz));
                }
                self.header = Some(header);
            }
            Kind::Ledger => self.ledger = measurement::read_ledger(fields)?,
            Kind::Samples => self.samples(fields)?,
            Kind::End => {}
            _ => {
                while !fields.is_empty() {
                    self.entry(kind, fields)?;
                }
            }
        }
        Some(())
    }

    fn entry(&mut self, kind: Kind, fields: &mut Fields<'_>) -> Option<()> {
        match kind {
            Kind::Events => self.event(fields)?,
            Kind::Findings => self.finding(fields)?,
            Kind::FindingFacts => self.finding_facts(fields)?,
            Kind::FindingPartners => {
                let (finding, partner) = read_partner(fields)?;
                self.findings.get_mut(finding)?.facts.partner = Some(partner);
            }
            Kind::Strings => self.strings.push(self.builder.string(fields.text()?)),
            Kind::Modules => self.module(fields)?,
            Kind::Frames => self.frame(fields)?,
            Kind::Stacks => self.stack(fields)?,
            Kind::Processes => self.process(fields)?,
            Kind::Containers => self.container(fields)?,
            Kind::RuntimeEvents => self.runtime_event(fields)?,
            Kind::OmittedEvents => self.omitted_events(fields)?,
            Kind::LockOwners => self.lock_owner(fields)?,
            Kind::ManagedThreads => self.managed_thread(fields)?,
            Kind::PollReadings => self.poll_reading(fields)?,
            Kind::KubernetesNames => self.kubernetes_names(fields)?,
            Kind::Attributes => self.attribute(fields)?,
            _ => self.thread(fields)?,
        }
        Some(())
    }

    fn event(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        /// The ids of events have 16 bits.
        const MAX_EVENTS: usize = u16::MAX as usize;
        let name = fields.text()?.to_owned();
        let sampling = match (fields.number()?, fields.number()?) {
            (AT_FREQUENCY, frequency_hz) => Sampling::Frequency(frequency_hz),
            (DURATIONS, min_ns) => Sampling::Durations { min_ns },
            (OCCURRENCES, period) => Sampling::Occurrences { period },
            (SUMS, period) => Sampling::Sums { period },
            (TIMES, period) => Sampling::Times { period },
            _ => return None,
        };
        if self.events.len() == MAX_EVENTS {
            return None;
        }
        self.events.push(self.builder.event(Event { name, sampling }));
        Some(())
    }

    fn finding(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.findings.push(Finding {
            kind: VariantCode::from_code(fields.number()?)?,
            event: match self.version {
                ..VERSION_OF_RUNTIME_EVENTS => Some(fields.entry(&self.events)?),
                _ => fields.optional(&self.events)?,
            },
            value: fields.number()?,
            evidence: fields.text()?.to_owned(),
            remedy: fields.text()?.to_owned(),
            facts: FindingFacts::default(),
        });
        Some(())
    }

    fn finding_facts(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.findings.get_mut(self.findings_with_facts)?.facts = read_facts(fields)?;
        self.findings_with_facts += 1;
        Some(())
    }

    fn module(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let path = fields.entry(&self.strings)?;
        let build_id = fields.data()?;
        self.modules.push(self.builder.module_at(path, build_id));
        Some(())
    }

    fn frame(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let frame = Frame {
            name: fields.entry(&self.strings)?,
            kind: VariantCode::from_code(fields.number()?)?,
            module: fields.optional(&self.modules)?,
            address: ElfAddress(fields.number()?),
            location: match fields.optional(&self.strings)? {
                Some(file) => Some(SourceLocation { file, line: fields.number_u32()? }),
                None => None,
            },
            symbolization: match fields.number()? {
                0 => Symbolization::Address(VariantCode::from_code(fields.number()?)?),
                _ => Symbolization::Symbol(VariantCode::from_code(fields.number()?)?),
            },
        };
        self.frames.push(self.builder.frame(frame));
        Some(())
    }

    fn stack(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let end = VariantCode::from_code(fields.number()?)?;
        let count = fields.index()?;
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(fields.entry(&self.frames)?);
        }
        let mut walked = Vec::new();
        for frame in frames {
            walked.push((frame, VariantCode::from_code(fields.number()?)?));
        }
        self.stacks.push(self.builder.unwound_stack(walked, end));
        Some(())
    }

    fn process(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let pid = fields.number_u32()?;
        let comm = fields.entry(&self.strings)?;
        self.processes.push(self.builder.process_named(pid, comm));
        Some(())
    }

    fn container(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let process = fields.entry(&self.processes)?;
        let id = fields.entry(&self.strings)?;
        self.builder.set_container_named(process, id);
        Some(())
    }

    fn kubernetes_names(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let process = fields.entry(&self.processes)?;
        let names = KubernetesNames {
            namespace: fields.entry(&self.strings)?,
            pod: fields.entry(&self.strings)?,
            container: fields.optional(&self.strings)?,
        };
        self.builder.set_kubernetes_names(process, names);
        Some(())
    }

    fn attribute(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let process = fields.entry(&self.processes)?;
        let attribute = Attribute { name: fields.entry(&self.strings)?, value: fields.entry(&self.strings)? };
        self.builder.set_attribute(process, attribute);
        Some(())
    }

    fn thread(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let process = fields.entry(&self.processes)?;
        let tid = fields.number_u32()?;
        let comm = fields.entry(&self.strings)?;
        self.threads.push(self.builder.thread_named(process, tid, comm));
        Some(())
    }

    fn runtime_event(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let mut event = RuntimeEvent {
            time_ns: fields.number()?,
            duration_ns: fields.number()?,
            process: fields.entry(&self.processes)?,
            thread: fields.optional(&self.threads)?,
            kind: VariantCode::from_code(fields.number()?)?,
            name: fields.entry(&self.strings)?,
            stack: fields.optional(&self.stacks)?,
            fields: Box::default(),
        };
        let mut event_fields = Vec::new();
        for _ in 0..fields.number()? {
            event_fields.push(EventField {
                name: fields.entry(&self.strings)?,
                value: match fields.number()? {
                    UNSIGNED => FieldValue::Unsigned(fields.number()?),
                    SIGNED => FieldValue::Signed(fields.number()?.cast_signed()),
                    REAL => FieldValue::Real(f64::from_bits(fields.number()?)),
                    TEXT => FieldValue::Text(fields.entry(&self.strings)?),
                    _ => return None,
                },
            });
        }
        event.fields = event_fields.into();
        self.builder.add_runtime_event(event);
        Some(())
    }

    fn omitted_events(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.builder.add_omitted_events(OmittedEvents {
            time_ns: fields.number()?,
            process: fields.entry(&self.processes)?,
            kind: VariantCode::from_code(fields.number()?)?,
            count: fields.number()?,
            duration_ns: fields.number()?,
            longest_ns: fields.number()?,
            is_lower_bound: fields.number()? > 0,
        });
        Some(())
    }

    fn lock_owner(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.builder.add_lock_owner(LockOwner {
            time_ns: fields.number()?,
            owner: fields.entry(&self.threads)?,
            lock: fields.number()?,
            managed_thread_id: fields.number_u32()?,
            waiters: fields.number_u32()?,
        });
        Some(())
    }

    fn managed_thread(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.builder.add_managed_thread(ManagedThread {
            time_ns: fields.number()?,
            thread: fields.entry(&self.threads)?,
            managed_id: fields.number_u32()?,
            name: fields.optional(&self.strings)?,
            exception: fields.optional(&self.strings)?,
            gc_mode: VariantCode::from_code(fields.number()?)?,
        });
        Some(())
    }

    fn poll_reading(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        self.builder.add_poll_reading(PollReading {
            time_ns: fields.number()?,
            thread: fields.entry(&self.threads)?,
            awaits_connections: fields.number()? > 0,
        });
        Some(())
    }

    fn samples(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let count = fields.index()?;
        let times_ns = column(fields, count, Fields::number)?;
        let cpus = column(fields, count, Fields::number_u32)?;
        let threads = column(fields, count, |fields| fields.entry(&self.threads))?;
        let stacks = column(fields, count, |fields| fields.entry(&self.stacks))?;
        let values = column(fields, count, Fields::number)?;
        let has_events = !fields.is_empty();
        let (events, states) = if has_events {
            (
                column(fields, count, |fields| fields.entry(&self.events))?,
                column(fields, count, |fields| fields.optional_variant())?,
            )
        } else {
            (vec![EventId::FIRST; count], vec![None; count])
        };
        let mut time_ns = 0_u64;
        let columns = times_ns.into_iter().zip(cpus).zip(threads).zip(stacks).zip(values);
        for (((((since_ns, cpu), thread), stack), value), (event, state)) in
            columns.zip(events.into_iter().zip(states))
        {
            time_ns = time_ns.checked_add(since_ns)?;
            self.builder.add_sample(Sample { time_ns, cpu, thread, stack, event, state, value });
        }
        Some(())
    }
}

/// One field of all samples. Memory is taken as fields come, not as they are promised.
fn column<'a, T>(
    fields: &mut Fields<'a>,
    count: usize,
    mut read: impl FnMut(&mut Fields<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut column = Vec::new();
    for _ in 0..count {
        column.push(read(fields)?);
    }
    Some(column)
}
