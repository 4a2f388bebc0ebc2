//! What a reading of the memory of a process found.

use std::ops::Range;

use profiler_addresses::MonotonicTime;

use super::{found_methods::ReadMethod, function_frames::ManagedFunctionFrames};

/// A reading of the memory of a process.
#[derive(Debug)]
pub(super) struct Reading {
    /// The addresses that were to be looked up.
    pub(super) addresses: Vec<u64>,
    pub(super) found: Result<Found, ReadFailure>,
    /// The times before and after it.
    pub(super) read_during: Range<MonotonicTime>,
}

/// The result of lookups.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) code: Vec<(u64, Result<ReadMethod, Unnamed>)>,
    /// What describes the frames of methods that cannot be freed.
    pub(super) frames: Vec<ManagedFunctionFrames>,
    /// The addresses for which there was no time.
    pub(super) left: Vec<u64>,
    /// In the first read, the starts of the code that can be freed; none if there is too much.
    pub(super) freeable: Option<Option<Vec<u64>>>,
}

/// Why an address has no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(all(not(feature = "dotnet-memory"), not(test)), expect(dead_code))]
pub(super) enum Unnamed {
    /// It is in a stub of a known kind, whose memory never becomes that of a method.
    Stub,
    /// The runtime does not list the memory as code, or as that of a stub of an unknown kind. Some stubs are in such memory, and
    /// code that was freed was there.
    NotListed,
    /// Its method was gone, or its data structures changed while they were read.
    Freed,
    /// Its method is of a kind whose name cannot be read.
    NoName,
}

/// Why no address was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "dotnet-memory"), expect(dead_code))]
pub(super) enum ReadFailure {
    /// The process has ended.
    ProcessEnded,
    /// The memory cannot be read.
    NotReadable,
    /// The data structures are unknown.
    NotDescribed,
}
