//! Records the memory that is read of a .NET runtime, as a file of a capture, and answers the same reads in its replay.
//!
//! A recording has the readings of a session: the addresses that each looked up, its times, and the memory that it read. A replay
//! looks up the same addresses in the same order, and needs neither the runtime nor its file. Memory that a later reading found as
//! an earlier one did is recorded once. Within one reading, memory has the bytes that were read last.
//!
//! ```text
//! header    magic, address of the descriptor, address of `g_dacTable` or 0
//! record    1: address, length in 4 bytes, bytes          memory that was read
//!           2: address, length in 4 bytes                 memory that can no longer be read
//!           3: time before, time after (CLOCK_MONOTONIC, ns), outcome in 1 byte, number of addresses in 4 bytes, addresses
//! ```
//!
//! Numbers are little-endian; addresses and times have 8 bytes. A record of kind 3 ends a reading.

use std::ops::Range;

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_binary_reader::{ByteCursor, ParseError};
use profiler_dotnet_runtime::RuntimeSymbols;
use profiler_processes::Pid;

use super::memory_pages::MemoryPages;
use crate::method_memory::reading::{ReadFailure, Reading};

const MAGIC: &[u8; 8] = b"DNMEMRD1";

const BYTES: u8 = 1;
const UNREADABLE: u8 = 2;
const READING: u8 = 3;

/// The outcome of a reading that found what there was.
const FOUND: u8 = 0;

/// Bytes of one recording, and of the memory in it. A web server with 3,000 sampled methods has 25 MB.
const MAX_RECORDING_BYTES: usize = 48 << 20;

/// Records what is read of a runtime.
#[derive(Debug, Default)]
pub(super) struct MemoryRecorder {
    symbols: Option<RuntimeSymbols>,
    records: Vec<u8>,
    pages: MemoryPages,
    is_full: bool,
}

impl MemoryRecorder {
    pub(super) fn set_symbols(&mut self, symbols: RuntimeSymbols) {
        self.symbols = Some(symbols);
    }

    /// Adds what a read found at an address.
    pub(super) fn add_bytes(&mut self, address: u64, bytes: &[u8]) {
        if self.is_full || self.pages.has(address, bytes) {
            return;
        }
        let is_within = self.records.len() + bytes.len() <= MAX_RECORDING_BYTES;
        if !is_within || self.pages.write(address, bytes).is_err() {
            self.is_full = true;
            return;
        }
        self.add_record(BYTES, address, bytes.len());
        self.records.extend_from_slice(bytes);
    }

    /// Adds that nothing was read. Memory that was not read before needs no record.
    pub(super) fn add_unreadable(&mut self, address: u64, length: usize) {
        if !self.is_full && self.pages.remove(address, length) {
            self.add_record(UNREADABLE, address, length);
        }
    }

    fn add_record(&mut self, kind: u8, address: u64, length: usize) {
        self.records.push(kind);
        self.records.extend(address.to_le_bytes());
        self.records.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// Ends a reading. The addresses that it did not come to are those of a later one.
    pub(super) fn end_reading(&mut self, reading: &Reading) {
        if self.is_full {
            return;
        }
        let looked_up: Vec<u64> = match &reading.found {
            Ok(found) => found.code.iter().map(|(address, _)| *address).collect(),
            Err(_) => reading.addresses.clone(),
        };
        self.records.push(READING);
        self.records.extend(reading.read_during.start.0.to_le_bytes());
        self.records.extend(reading.read_during.end.0.to_le_bytes());
        self.records.push(reading.found.as_ref().err().map_or(FOUND, |failure| failure.code()));
        self.records.extend(u32::try_from(looked_up.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.records.extend(looked_up.iter().flat_map(|address| address.to_le_bytes()));
    }

    /// The memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.records.capacity() + self.pages.memory_bytes()
    }

    /// The recording up to now; `None` if nothing was read.
    pub(super) fn recording(&self, pid: Pid) -> Option<Vec<u8>> {
        if self.is_full {
            log::warn!("the capture lacks what was read last of the memory of process {pid}: it is too much");
        }
        let symbols = self.symbols.filter(|_| !self.records.is_empty())?;
        let dac_table = symbols.dac_table.map_or(0, |address| address.0);
        let header = [*MAGIC, symbols.descriptor.0.to_le_bytes(), dac_table.to_le_bytes()];
        Some([header.as_flattened(), &self.records].concat())
    }
}

impl ReadFailure {
    /// Its number in recordings.
    fn code(self) -> u8 {
        match self {
            Self::ProcessEnded => 1,
            Self::NotReadable => 2,
            Self::NotDescribed => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::ProcessEnded, Self::NotReadable, Self::NotDescribed]
            .into_iter()
            .find(|failure| failure.code() == code)
    }
}

/// A recording that is replayed.
#[derive(Debug)]
pub(super) struct MemoryRecording<'a> {
    pub(super) symbols: RuntimeSymbols,
    records: ByteCursor<'a>,
    /// The bytes of memory that its records may have.
    left_bytes: usize,
}

/// A recorded reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedReading {
    pub(super) addresses: Vec<u64>,
    /// Why no address was looked up.
    pub(super) failure: Option<ReadFailure>,
    pub(super) read_during: Range<MonotonicTime>,
}

impl<'a> MemoryRecording<'a> {
    /// Reads the header of a recording.
    ///
    /// # Errors
    /// [`ParseError`] when the bytes are not a recording.
    pub(super) fn parse(recording: &'a [u8]) -> Result<Self, ParseError> {
        let mut records = ByteCursor::new(recording, 0);
        if records.array()? != *MAGIC {
            return Err(ParseError::Malformed);
        }
        let (descriptor, dac_table) = (records.u64()?, records.u64()?);
        let symbols = RuntimeSymbols {
            descriptor: RuntimeAddress(descriptor),
            dac_table: (dac_table != 0).then_some(RuntimeAddress(dac_table)),
        };
        Ok(Self { symbols, records, left_bytes: MAX_RECORDING_BYTES })
    }

    /// Reads the records up to the end of the next reading, and changes memory as they state; `None` at the end of the recording.
    ///
    /// # Errors
    /// [`ParseError`] when a record is malformed or truncated, or there is too much memory.
    pub(super) fn next_reading(
        &mut self,
        memory: &mut MemoryPages,
    ) -> Result<Option<RecordedReading>, ParseError> {
        while self.records.peek().is_some() {
            match self.records.u8()? {
                BYTES => {
                    let (address, length) = self.range()?;
                    memory.write(address, self.records.take(length)?)?;
                }
                UNREADABLE => {
                    let (address, length) = self.range()?;
                    memory.remove(address, length);
                }
                READING => return self.reading().map(Some),
                _ => return Err(ParseError::Malformed),
            }
        }
        Ok(None)
    }

    /// The address and the length of memory.
    fn range(&mut self) -> Result<(u64, usize), ParseError> {
        let (address, length) = (self.records.u64()?, self.records.u32()? as usize);
        self.left_bytes = self.left_bytes.checked_sub(length).ok_or(ParseError::TooLarge)?;
        Ok((address, length))
    }

    fn reading(&mut self) -> Result<RecordedReading, ParseError> {
        const ADDRESS_BYTES: usize = 8;
        let read_during = MonotonicTime(self.records.u64()?)..MonotonicTime(self.records.u64()?);
        let failure = match self.records.u8()? {
            FOUND => None,
            code => Some(ReadFailure::from_code(code).ok_or(ParseError::Malformed)?),
        };
        let count = self.records.u32()? as usize;
        let addresses = self.records.take(count.saturating_mul(ADDRESS_BYTES))?;
        let (addresses, _) = addresses.as_chunks::<ADDRESS_BYTES>();
        let addresses = addresses.iter().map(|address| u64::from_le_bytes(*address)).collect();
        Ok(RecordedReading { addresses, failure, read_during })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method_memory::reading::{Found, Unnamed};

    const SYMBOLS: RuntimeSymbols =
        RuntimeSymbols { descriptor: RuntimeAddress(0x1000), dac_table: Some(RuntimeAddress(0x2000)) };

    /// A reading that came to the first of its addresses.
    fn reading(addresses: &[u64], read_during: Range<MonotonicTime>) -> Reading {
        let code = vec![(addresses[0], Err(Unnamed::Stub))];
        let found = Ok(Found { code, left: addresses[1..].to_vec(), ..Found::default() });
        Reading { addresses: addresses.to_vec(), found, read_during }
    }

    /// Two readings: the second one finds other memory, and less of it.
    fn recorder() -> MemoryRecorder {
        let mut recorder = MemoryRecorder::default();
        recorder.set_symbols(SYMBOLS);
        recorder.add_bytes(0x1ffe, b"abcd");
        recorder.add_unreadable(0x5000, 8);
        recorder.end_reading(&reading(&[7, 8], MonotonicTime(10)..MonotonicTime(20)));
        recorder.add_bytes(0x1ffe, b"abcd");
        recorder.add_bytes(0x1fff, b"B");
        recorder.add_unreadable(0x2000, 8);
        let found = Err(ReadFailure::ProcessEnded);
        recorder.end_reading(&Reading {
            addresses: vec![9],
            found,
            read_during: MonotonicTime(30)..MonotonicTime(40),
        });
        recorder
    }

    #[test]
    fn a_recording_has_the_readings_and_the_memory_of_each() {
        let recording = recorder().recording(Pid(7)).unwrap();
        let (mut read, mut memory) = (MemoryRecording::parse(&recording).unwrap(), MemoryPages::default());
        assert_eq!(read.symbols, SYMBOLS);
        let first = read.next_reading(&mut memory).unwrap().unwrap();
        assert_eq!(
            first,
            RecordedReading {
                addresses: vec![7],
                failure: None,
                read_during: MonotonicTime(10)..MonotonicTime(20)
            }
        );
        assert!(memory.has(0x1ffe, b"abcd") && !memory.has(0x1ffe, b"abcde"));
        let second = read.next_reading(&mut memory).unwrap().unwrap();
        let failure = Some(ReadFailure::ProcessEnded);
        assert_eq!(
            second,
            RecordedReading {
                addresses: vec![9],
                failure,
                read_during: MonotonicTime(30)..MonotonicTime(40)
            }
        );
        assert!(memory.has(0x1ffe, b"aB") && !memory.has(0x2000, b"c"));
        assert_eq!(read.next_reading(&mut memory), Ok(None));
    }

    #[test]
    fn what_was_read_before_is_recorded_once() {
        let mut recorder = MemoryRecorder::default();
        for _ in 0..100 {
            recorder.add_bytes(0x1000, &[1; 1_000]);
            recorder.add_unreadable(0x9000, 8);
        }
        assert!(recorder.records.len() < 1_100, "{}", recorder.records.len());
    }

    #[test]
    fn a_recording_that_is_too_large_has_its_first_readings() {
        let mut recorder = recorder();
        for address in 0..(2 * MAX_RECORDING_BYTES as u64) >> 20 {
            recorder.add_bytes(address << 20, &[1; 1 << 20]);
            recorder.end_reading(&reading(&[1], MonotonicTime(50)..MonotonicTime(60)));
        }
        let recording = recorder.recording(Pid(7)).unwrap();
        assert!(recording.len() <= MAX_RECORDING_BYTES + 10_000, "{}", recording.len());
        let (mut read, mut memory) = (MemoryRecording::parse(&recording).unwrap(), MemoryPages::default());
        let mut readings = 0;
        while read.next_reading(&mut memory).unwrap().is_some() {
            readings += 1;
        }
        assert!((10..60).contains(&readings), "{readings}");
    }

    #[test]
    fn truncated_and_garbled_recordings_are_errors_or_have_their_first_readings() {
        let recording = recorder().recording(Pid(7)).unwrap();
        for length in 0..recording.len() {
            for garbled in [recording[..length].to_vec(), {
                let mut copy = recording.clone();
                copy[length] ^= 0xff;
                copy
            }] {
                let Ok(mut read) = MemoryRecording::parse(&garbled) else { continue };
                let mut memory = MemoryPages::default();
                let readings = std::iter::from_fn(|| read.next_reading(&mut memory).ok().flatten());
                assert!(readings.count() <= 2);
            }
        }
        let header = &recording[..24];
        let endless = [header, &[UNREADABLE], &0x1000_u64.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
        let mut read = MemoryRecording::parse(&endless).unwrap();
        assert_eq!(read.next_reading(&mut MemoryPages::default()), Err(ParseError::TooLarge));
    }
}
