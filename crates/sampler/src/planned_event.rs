//! An event that is sampled at its occurrences, with the places of its probe.

use std::{fs::File, sync::Arc};

use profiler_addresses::FileOffset;

use crate::counted_event::CountedEvent;

/// An event that is sampled at its occurrences.
#[derive(Clone, Debug)]
pub struct PlannedEvent {
    /// The event.
    pub event: CountedEvent,
    /// The places of a probe.
    pub probed: Option<ProbedFile>,
}

/// A file with the places of a probe in it.
#[derive(Clone, Debug)]
pub struct ProbedFile {
    /// The file, open.
    pub file: Arc<File>,
    /// At least one.
    pub places: Vec<ProbePlace>,
}

/// A place of a probe in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlace {
    /// The instruction.
    pub offset: FileOffset,
    /// The 16-bit counter of the programs that watch a static probe, if it has one.
    pub semaphore: Option<FileOffset>,
    /// The operands of a static probe, for [`ProbeArgument`](profiler_elf_symbols::ProbeArgument), separated by spaces.
    pub operands: String,
}
