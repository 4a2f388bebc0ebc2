//! Writes a recording: samples in blocks, each after the table entries that it refers to.

use std::io::{self, BufWriter, Write};

use super::{
    MAGIC, VERSION,
    body::Body,
    codes::{AT_FREQUENCY, DURATIONS, OCCURRENCES, REAL, SIGNED, SUMS, TEXT, TIMES, UNSIGNED, VariantCode},
    facts::{push_facts, push_partner},
    measurement,
    section::{self, Kind, Packer},
};
use crate::{
    Event, FieldValue, Finding, Frame, LockOwner, ManagedThread, OmittedEvents, PollReading, Profile,
    RuntimeEvent, Sample, Sampling, Stack, Symbolization,
};

/// The number of sample blocks: a truncated file loses at most one of them.
const BLOCKS: usize = 16;

/// The smallest block of samples.
const MIN_BLOCK_SAMPLES: usize = 1 << 8;

/// The largest block of samples, so that a section stays below the size limit of the reader.
const MAX_BLOCK_SAMPLES: usize = 1 << 16;

/// A table section ends at this size, so that a damaged one loses few entries.
const TABLE_SECTION_BYTES: usize = 1 << 20;

/// Writes a profile.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut writer = Writer {
        profile,
        written: Entries::default(),
        body: Body::default(),
        packer: Packer::new(),
        to: BufWriter::new(to),
    };
    writer.to.write_all(&MAGIC)?;
    writer.to.write_all(&VERSION.to_le_bytes())?;
    measurement::push_header(profile.header(), &mut writer.body);
    writer.section(Kind::Header)?;
    writer.table(Kind::Events, profile.events(), push_event)?;
    measurement::push_ledger(profile.ledger(), &mut writer.body);
    writer.section(Kind::Ledger)?;
    writer.table(Kind::Findings, profile.findings().iter(), push_finding)?;
    let facts = profile.findings().iter().map(|finding| &finding.facts);
    writer.table(Kind::FindingFacts, facts, push_facts)?;
    let partners = profile.findings().iter().enumerate();
    let partners = partners.filter_map(|(index, finding)| Some((index, finding.facts.partner.as_ref()?)));
    writer.table(Kind::FindingPartners, partners, push_partner)?;
    let block_samples = (profile.samples().len() / BLOCKS).clamp(MIN_BLOCK_SAMPLES, MAX_BLOCK_SAMPLES);
    for block in profile.samples().chunks(block_samples) {
        writer.block(block)?;
    }
    writer.tables(&Entries::all(profile))?;
    writer.table(Kind::RuntimeEvents, profile.runtime_events().iter(), push_runtime_event)?;
    writer.table(Kind::OmittedEvents, profile.omitted_events().iter(), push_omitted_events)?;
    writer.table(Kind::LockOwners, profile.lock_owners().iter(), push_lock_owner)?;
    writer.table(Kind::ManagedThreads, profile.managed_threads().iter(), push_managed_thread)?;
    writer.table(Kind::PollReadings, profile.poll_readings().iter(), push_poll_reading)?;
    writer.section(Kind::End)?;
    writer.to.flush()
}

/// The number of entries of each table.
#[derive(Clone, Debug, Default)]
struct Entries {
    strings: usize,
    modules: usize,
    frames: usize,
    stacks: usize,
    processes: usize,
    threads: usize,
}

impl Entries {
    fn all(profile: &Profile) -> Self {
        Self {
            strings: profile.strings().len(),
            modules: profile.modules().len(),
            frames: profile.frames().len(),
            stacks: profile.stacks().len(),
            processes: profile.processes().len(),
            threads: profile.threads().len(),
        }
    }
}

struct Writer<'a, W: Write> {
    profile: &'a Profile,
    written: Entries,
    body: Body,
    packer: Packer,
    to: BufWriter<W>,
}

impl<W: Write> Writer<'_, W> {
    fn section(&mut self, kind: Kind) -> io::Result<()> {
        section::write(kind, self.body.bytes(), &mut self.packer, &mut self.to)?;
        self.body.clear();
        Ok(())
    }

    fn block(&mut self, samples: &[Sample]) -> io::Result<()> {
        let needed = self.required_entries(samples);
        self.tables(&needed)?;
        self.body.index(samples.len());
        // Columns compress better than rows.
        let mut last_ns = 0;
        for sample in samples {
            self.body.number(sample.time_ns - last_ns);
            last_ns = sample.time_ns;
        }
        samples.iter().for_each(|sample| self.body.number(sample.cpu.into()));
        samples.iter().for_each(|sample| self.body.index(sample.thread.index()));
        samples.iter().for_each(|sample| self.body.index(sample.stack.index()));
        samples.iter().for_each(|sample| self.body.number(sample.value));
        samples.iter().for_each(|sample| self.body.index(sample.event.index()));
        samples.iter().for_each(|sample| self.body.number(sample.state.map_or(0, VariantCode::code)));
        self.section(Kind::Samples)
    }

    /// The table entries that must precede these samples.
    fn required_entries(&self, samples: &[Sample]) -> Entries {
        let profile = self.profile;
        let mut needed = self.written.clone();
        for sample in samples {
            needed.threads = needed.threads.max(sample.thread.index() + 1);
            needed.stacks = needed.stacks.max(sample.stack.index() + 1);
        }
        for thread in profile.threads().take(needed.threads).skip(self.written.threads) {
            needed.processes = needed.processes.max(thread.process.index() + 1);
            needed.strings = needed.strings.max(thread.comm.index() + 1);
        }
        for process in profile.processes().iter().take(needed.processes).skip(self.written.processes) {
            let names =
                process.kubernetes.map(|names| [Some(names.namespace), Some(names.pod), names.container]);
            let names = names.into_iter().flatten().chain([Some(process.comm), process.container]);
            let attributes =
                process.attributes.iter().flat_map(|attribute| [attribute.name, attribute.value]);
            let last = names.flatten().chain(attributes).map(|id| id.index() + 1).max();
            needed.strings = needed.strings.max(last.unwrap_or_default());
        }
        for stack in profile.stacks().take(needed.stacks).skip(self.written.stacks) {
            let last = stack.frames.iter().map(|frame| frame.index() + 1).max();
            needed.frames = needed.frames.max(last.unwrap_or_default());
        }
        for frame in profile.frames().take(needed.frames).skip(self.written.frames) {
            let file = frame.location.map_or(0, |location| location.file.index() + 1);
            needed.strings = needed.strings.max(frame.name.index() + 1).max(file);
            needed.modules = needed.modules.max(frame.module.map_or(0, |module| module.index() + 1));
        }
        for module in profile.modules().take(needed.modules).skip(self.written.modules) {
            needed.strings = needed.strings.max(module.path.index() + 1);
        }
        needed
    }

    /// Writes all table entries up to `up_to` that are not written yet.
    fn tables(&mut self, up_to: &Entries) -> io::Result<()> {
        let (profile, from) = (self.profile, std::mem::replace(&mut self.written, up_to.clone()));
        let strings = profile.strings().take(up_to.strings).skip(from.strings);
        self.table(Kind::Strings, strings, |text, body| body.text(text))?;
        let modules = profile.modules().take(up_to.modules).skip(from.modules);
        self.table(Kind::Modules, modules, |module, body| {
            body.index(module.path.index());
            body.data(&module.build_id);
        })?;
        let frames = profile.frames().take(up_to.frames).skip(from.frames);
        self.table(Kind::Frames, frames, push_frame)?;
        let stacks = profile.stacks().take(up_to.stacks).skip(from.stacks);
        self.table(Kind::Stacks, stacks, push_stack)?;
        let processes = profile.processes().iter().take(up_to.processes).skip(from.processes);
        self.table(Kind::Processes, processes.clone(), |process, body| {
            body.number(process.pid.into());
            body.index(process.comm.index());
        })?;
        let containers = (from.processes..)
            .zip(processes.clone())
            .filter_map(|(index, process)| Some((index, process.container?)));
        self.table(Kind::Containers, containers, |(process, id), body| {
            body.index(process);
            body.index(id.index());
        })?;
        let of_pods = (from.processes..)
            .zip(processes.clone())
            .filter_map(|(index, process)| Some((index, process.kubernetes?)));
        self.table(Kind::KubernetesNames, of_pods, |(process, names), body| {
            body.index(process);
            body.index(names.namespace.index());
            body.index(names.pod.index());
            body.optional_index(names.container.map(|name| name.index()));
        })?;
        let attributes = (from.processes..)
            .zip(processes)
            .flat_map(|(index, process)| process.attributes.iter().map(move |attribute| (index, attribute)));
        self.table(Kind::Attributes, attributes, |(process, attribute), body| {
            body.index(process);
            body.index(attribute.name.index());
            body.index(attribute.value.index());
        })?;
        let threads = profile.threads().take(up_to.threads).skip(from.threads);
        self.table(Kind::Threads, threads, |thread, body| {
            body.index(thread.process.index());
            body.number(thread.tid.into());
            body.index(thread.comm.index());
        })
    }

    fn table<T>(
        &mut self,
        kind: Kind,
        entries: impl Iterator<Item = T>,
        push: impl Fn(T, &mut Body),
    ) -> io::Result<()> {
        for entry in entries {
            push(entry, &mut self.body);
            if self.body.bytes().len() >= TABLE_SECTION_BYTES {
                self.section(kind)?;
            }
        }
        if self.body.bytes().is_empty() { Ok(()) } else { self.section(kind) }
    }
}

fn push_event(event: &Event, body: &mut Body) {
    body.text(&event.name);
    let (kind, number) = match event.sampling {
        Sampling::Frequency(frequency_hz) => (AT_FREQUENCY, frequency_hz),
        Sampling::Durations { min_ns } => (DURATIONS, min_ns),
        Sampling::Occurrences { period } => (OCCURRENCES, period),
        Sampling::Sums { period } => (SUMS, period),
        Sampling::Times { period } => (TIMES, period),
    };
    body.number(kind);
    body.number(number);
}

fn push_finding(finding: &Finding, body: &mut Body) {
    body.number(finding.kind.code());
    body.optional_index(finding.event.map(|event| event.index()));
    body.number(finding.value);
    body.text(&finding.evidence);
    body.text(&finding.remedy);
}

fn push_runtime_event(event: &RuntimeEvent, body: &mut Body) {
    body.number(event.time_ns);
    body.number(event.duration_ns);
    body.index(event.process.index());
    body.optional_index(event.thread.map(|thread| thread.index()));
    body.number(event.kind.code());
    body.index(event.name.index());
    body.optional_index(event.stack.map(|stack| stack.index()));
    body.index(event.fields.len());
    for field in &event.fields {
        body.index(field.name.index());
        let (kind, number) = match field.value {
            FieldValue::Unsigned(number) => (UNSIGNED, number),
            FieldValue::Signed(number) => (SIGNED, number.cast_unsigned()),
            FieldValue::Real(number) => (REAL, number.to_bits()),
            FieldValue::Text(text) => (TEXT, text.index() as u64),
        };
        body.number(kind);
        body.number(number);
    }
}

fn push_omitted_events(omitted: &OmittedEvents, body: &mut Body) {
    body.number(omitted.time_ns);
    body.index(omitted.process.index());
    body.number(omitted.kind.code());
    body.number(omitted.count);
    body.number(omitted.duration_ns);
    body.number(omitted.longest_ns);
    body.number(omitted.is_lower_bound.into());
}

fn push_lock_owner(lock: &LockOwner, body: &mut Body) {
    body.number(lock.time_ns);
    body.index(lock.owner.index());
    body.number(lock.lock);
    body.number(lock.managed_thread_id.into());
    body.number(lock.waiters.into());
}

fn push_managed_thread(reading: &ManagedThread, body: &mut Body) {
    body.number(reading.time_ns);
    body.index(reading.thread.index());
    body.number(reading.managed_id.into());
    body.optional_index(reading.name.map(|name| name.index()));
    body.optional_index(reading.exception.map(|exception| exception.index()));
    body.number(reading.gc_mode.code());
}

fn push_poll_reading(reading: &PollReading, body: &mut Body) {
    body.number(reading.time_ns);
    body.index(reading.thread.index());
    body.number(reading.awaits_connections.into());
}

fn push_frame(frame: &Frame, body: &mut Body) {
    body.index(frame.name.index());
    body.number(frame.kind.code());
    body.optional_index(frame.module.map(|module| module.index()));
    body.number(frame.address.0);
    body.optional_index(frame.location.map(|location| location.file.index()));
    if let Some(location) = frame.location {
        body.number(location.line.into());
    }
    let (is_named, code) = match frame.symbolization {
        Symbolization::Symbol(source) => (true, source.code()),
        Symbolization::Address(reason) => (false, reason.code()),
    };
    body.number(is_named.into());
    body.number(code);
}

fn push_stack(stack: &Stack, body: &mut Body) {
    body.number(stack.end.code());
    body.index(stack.frames.len());
    stack.frames.iter().for_each(|frame| body.index(frame.index()));
    stack.found_by.iter().for_each(|found_by| body.number(found_by.code()));
}
