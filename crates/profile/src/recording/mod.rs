//! The recording format (`run.profile`): a whole profile as a file.
//!
//! The file starts with an eight-byte magic and a version (32 bits, little-endian). Sections follow, each with a header
//! of 13 bytes: kind (8 bits), uncompressed and compressed length of its body (32 bits each, little-endian), and the
//! CRC-32 of these nine bytes and of the body, which is compressed by deflate (RFC 1951). Bodies consist of LEB128
//! numbers and of length-prefixed texts and byte strings:
//!
//! | kind | body |
//! |---|---|
//! | 1 header | target, an empty text, 0, duration, start (since 1970, monotonic), CPUs; count of edits, edits; 1 and start, time, condition, values of an incident, or 0 |
//! | 2 ledger | as in [`Ledger`](crate::Ledger), maps as length and pairs; its last field, which older recordings lack, is the causes of event sessions |
//! | 3 strings | texts |
//! | 4 modules | path, build id |
//! | 5 frames | name, kind, module, address, file, line where there is a file, 1 and symbol source, or 0 and reason |
//! | 6 stacks | end, count of frames, frames leaf first, how each was found |
//! | 7 processes | pid, name |
//! | 8 threads | process, tid, name |
//! | 9 samples | count; then columns: time since the previous sample, CPU, thread, stack, value, event, state (0 for none) |
//! | 10 end | |
//! | 11 containers | process, id; for processes in a container |
//! | 12 events | name, kind of sampling (1 at a frequency, 2 durations, 3 occurrences, 4 sums), frequency, minimum or period |
//! | 13 findings | kind, event (0 for runtime events), value, evidence, remedy |
//! | 14 runtime events | time, duration, process, thread, kind, name, stack; count of fields; of each its name, the kind of its value and the value |
//! | 15 Kubernetes names | process, namespace, pod, container (0 for a sandbox); for processes in a container of a pod |
//! | 16 attributes | process, name, value; for processes with further attributes |
//! | 17 lock owners | time, owner (a thread), lock, managed id of the owner, waiters |
//! | 19 finding facts | in the order of the findings; see below |
//! | 21 poll readings | time, thread, 1 if it waited for new connections, or 0 |
//! | 22 managed threads | time, thread, managed id, name and type of the exception (both optional), GC mode |
//!
//! The facts of a finding are these fields. An optional field is 0, or 1 and its value; a real number is the bits of an IEEE 754
//! number of 64 bits. Count and ids of processes; optional threads; optional threads at a time (real); optional whole and percent
//! (real); optional method and optional file and line; optional thread of the cause; optional begin; 0 for proven, or the proof of
//! what is likely; begin and end of the selection, count and ids of its threads, kind of its runtime events or 0, optional text
//! of its search. Without this section, as in recordings of earlier versions, findings have no facts.
//!
//! A section of kinds 3 to 8, 11 to 17, 19, 21 and 22 holds entries of its table until its body ends. A reference is the index of an entry
//! in its table (index plus 1 where it is optional, 0 for none). An entry precedes all references to it, so that the
//! samples of a truncated file can be read. `codes.rs` has the numbers of variants.
//!
//! Version 1 has one event, whose name and frequency are in the header, and samples without event and state. Up to version
//! 2, each finding has an event, and there are no runtime events.
//!
//! A reader skips unknown sections and additional fields at the end of a header or a ledger. Any other change, and any
//! new variant, needs a new version; older versions stay readable.

mod body;
mod codes;
mod facts;
mod measurement;
mod reader;
mod section;
#[cfg(test)]
mod tests;
mod writer;

use std::io::{self, Read, Write};

use crate::{Profile, ReadError};

/// The first bytes of a recording. The first one is not valid UTF-8, so that no tool takes the file for text.
const MAGIC: [u8; 8] = *b"\x93PROFIL\n";

/// The version that this crate writes.
const VERSION: u32 = 3;

/// A recording with valid checksums for the fuzzer, from the kind, length and body of each section.
#[cfg(fuzzing)]
pub fn recording_of_section_bodies(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    while let [kind, length, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        if let Some(kind) = section::Kind::of_number(*kind) {
            // Writing to a vector cannot fail.
            let _ = section::write(kind, body, &mut section::Packer::new(), &mut file);
        }
        bytes = rest;
    }
    file
}

impl Profile {
    /// Reads a profile that was written by [`write_recording`](Self::write_recording).
    ///
    /// A truncated or damaged file gives the samples before the damage; the last of the [edits](crate::Header::edits) then
    /// says so.
    ///
    /// # Errors
    /// A file that is no recording, was written by a later version of this crate, or ends before its header; and
    /// errors of `from`.
    ///
    /// ```
    /// use profiler_profile::{Header, Profile, ProfileBuilder};
    ///
    /// let profile = ProfileBuilder::default().finish(Header { cpus: 4, ..Header::default() });
    /// let mut recording = Vec::new();
    /// profile.write_recording(&mut recording)?;
    /// assert_eq!(Profile::read(&*recording)?.header(), profile.header());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(from: impl Read) -> Result<Self, ReadError> {
        reader::read(from)
    }

    /// Writes the profile as a recording, which [`read`](Self::read) reads.
    ///
    /// # Errors
    /// Errors of `to`.
    pub fn write_recording(&self, to: impl Write) -> io::Result<()> {
        writer::write(self, to)
    }
}
