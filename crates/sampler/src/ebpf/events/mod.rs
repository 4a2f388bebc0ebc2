//! The kinds of events that a session samples. A module for each has all that is particular to it: its settings and their
//! limits, its programs and maps, its counters and how they become losses, its events in a profile, and what a session is
//! without it. The plan, the loader, the counts and the ledger go over a list of kinds.

mod cpu_ticks;
mod kind;
mod occurrences;
mod off_cpu;
mod plan;
mod settings;
mod wall;
mod wall_share;

#[cfg(any(test, fuzzing))]
use profiler_common::RecordKind;

pub(crate) use self::kind::LoadedEvent;
pub use self::{
    kind::{ArrivedSamples, Waits},
    off_cpu::OffCpu,
    plan::EventPlan,
    settings::{DEFAULT_FREQUENCY_HZ, EventSettings, MAX_COUNTED_EVENTS},
    wall_share::WallShare,
};
#[cfg(any(test, fuzzing))]
use super::counted_waits::CountedWaits;
#[cfg(any(test, fuzzing))]
use crate::{batch::Batch, sample::Origin};

/// Decodes a record of one event of each kind.
#[cfg(any(test, fuzzing))]
pub(super) fn decode_sample(kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
    match kind {
        RecordKind::Sample => cpu_ticks::decode(record, Origin::default(), batch),
        RecordKind::Wait => wall::decode(record, 1, batch),
        RecordKind::OffCpu => off_cpu::decode(record, &mut CountedWaits::new(2, false), batch),
        RecordKind::Event => occurrences::decode(record, 3, batch),
        RecordKind::Stack | RecordKind::StaleMappings => None,
    }
}
