//! A whole profile as a file, to be looked at later and elsewhere: `run.profile`.
//!
//! The file begins with the eight bytes of its magic and a version (32 bits, little-endian). Sections follow, each with
//! a head of 13 bytes: kind (8 bits), length of its body unpacked and packed (32 bits each, little-endian), and the
//! CRC-32 of the nine bytes before it and of the packed body, which is compressed by deflate (RFC 1951). Bodies are made
//! of numbers of as many bytes as they need (LEB128) and of texts and bytes with their length in front:
//!
//! | kind | body |
//! |---|---|
//! | 1 header | target, event, frequency, duration, start (since 1970, monotonic), CPUs; count of edits, edits |
//! | 2 ledger | as in [`Ledger`](crate::Ledger), maps as their length and their pairs |
//! | 3 strings | texts |
//! | 4 modules | path, build id |
//! | 5 frames | name, kind, module, address, file, line where there is a file, whether it has a symbol, source or reason |
//! | 6 stacks | end, count of frames, frames leaf first, how each was found |
//! | 7 processes | pid, name |
//! | 8 threads | process, tid, name |
//! | 9 samples | count; then of all of them the time since the one before, the CPU, the thread, the stack, the count |
//! | 10 end | |
//! | 11 containers | process, id; for processes that run in one |
//!
//! A section of kinds 3 to 8 and 11 goes on with its table until its body ends. An entry is referred to by its place in its
//! table, counted from 0 (from 1 where it may be missing, 0 then standing for none), and stands before what refers to
//! it: a file that was cut short gives the samples that are there. Variants have the numbers of `codes.rs`.
//!
//! A reader passes over sections that it does not know and over what follows in a header or a ledger. Whoever changes
//! anything else, or adds a variant, counts the version up and keeps reading the older ones.

mod body;
mod codes;
mod measurement;
mod reader;
mod section;
#[cfg(test)]
mod tests;
mod writer;

use std::io::{self, Read, Write};

use crate::{Profile, ReadError};

/// How a file begins. No text does: neither a tool nor a transfer takes it for one.
const MAGIC: [u8; 8] = *b"\x93PROFIL\n";

/// The version that is written.
const VERSION: u32 = 1;

/// The file that these bytes describe, so that their checksums are right: kind, length and body of each section.
#[cfg(fuzzing)]
pub fn file_of_bodies(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    while let [kind, length, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        if let Some(kind) = section::Kind::of_number(*kind) {
            // Writing to a vector cannot fail.
            let _ = section::write(kind, body, &mut file);
        }
        bytes = rest;
    }
    file
}

impl Profile {
    /// Reads a profile that was written by [`write_recording`](Self::write_recording).
    ///
    /// Of a file that ends too early or is damaged it gives what stands before, and the last of the
    /// [edits](crate::Header::edits) says so.
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
