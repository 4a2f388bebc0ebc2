//! The last minutes of a session in bounded memory: profiles of consecutive intervals, encoded as recordings.

use std::{collections::VecDeque, io, time::Duration};

use profiler_profile::Profile;

use super::nanoseconds;

/// The intervals of this time are encoded together, and all intervals are at most this long: symbols are looked up, and strings,
/// frames and stacks written, once for each.
const SEGMENT: Duration = Duration::from_secs(5);

/// Consecutive profiles of a session, not older than a duration.
#[derive(Debug)]
pub(super) struct Ring {
    /// `None` keeps all, up to the bytes.
    keep: Option<Duration>,
    max_bytes: usize,
    segments: VecDeque<Segment>,
    bytes: usize,
    /// The newest intervals, not yet encoded.
    open: Vec<Profile>,
}

/// Encoded intervals.
#[derive(Debug)]
struct Segment {
    recording: Vec<u8>,
    times: Times,
}

/// The times of intervals, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    start_ns: u64,
    end_ns: u64,
}

impl Times {
    fn of(profile: &Profile) -> Self {
        let start_ns = profile.header().started_monotonic_ns;
        Self { start_ns, end_ns: start_ns.saturating_add(profile.header().duration_ns) }
    }
}

impl Ring {
    /// An empty ring. `keep`: `None` keeps all intervals until the ring is cleared. `max_bytes`: of the encoded intervals.
    pub(super) fn new(keep: Option<Duration>, max_bytes: usize) -> Self {
        Self { keep, max_bytes, segments: VecDeque::new(), bytes: 0, open: Vec::new() }
    }

    /// Adds the profile of the next interval, and retires the intervals that are too old or too many.
    ///
    /// # Errors
    /// The profile cannot be encoded.
    pub(super) fn push(&mut self, interval: Profile) -> io::Result<()> {
        let end_ns = Times::of(&interval).end_ns;
        self.open.push(interval);
        if self.time_to_encode().is_zero() {
            self.encode_open()?;
        }
        let start_ns = self.keep.map_or(0, |keep| end_ns.saturating_sub(nanoseconds(keep)));
        self.retire(|ring, oldest| oldest.times.end_ns <= start_ns || ring.bytes > ring.max_bytes);
        Ok(())
    }

    /// Whether the next intervals may push the oldest out: nine tenths of the bytes are used.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.bytes > self.max_bytes / 10 * 9
    }

    /// The longest time that the next interval may have.
    pub(super) fn time_to_encode(&self) -> Duration {
        let open_ns = self.open.iter().map(|profile| profile.header().duration_ns).sum();
        SEGMENT.saturating_sub(Duration::from_nanos(open_ns))
    }

    /// The time from the first interval to the last.
    pub(super) fn duration(&self) -> Duration {
        let first = self.segments.front().map(|segment| segment.times);
        let first = first.or_else(|| self.open.first().map(Times::of));
        let last =
            self.open.last().map(Times::of).or_else(|| self.segments.back().map(|segment| segment.times));
        let length_ns = first.zip(last).map_or(0, |(first, last)| last.end_ns.saturating_sub(first.start_ns));
        Duration::from_nanos(length_ns)
    }

    /// One profile of all intervals.
    ///
    /// # Errors
    /// An encoded interval cannot be decoded.
    pub(super) fn profile(&self) -> io::Result<Profile> {
        let decode = |segment: &Segment| Profile::read(&*segment.recording).map_err(io::Error::other);
        let decoded = self.segments.iter().map(decode).collect::<io::Result<Vec<_>>>()?;
        Ok(Profile::joined(decoded.iter().chain(&self.open)))
    }

    /// Removes all intervals.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
        self.open.clear();
    }

    fn encode_open(&mut self) -> io::Result<()> {
        let joined = match self.open.pop() {
            Some(only) if self.open.is_empty() => only,
            last => {
                self.open.extend(last);
                Profile::joined(&self.open)
            }
        };
        let mut recording = Vec::new();
        joined.write_recording(&mut recording)?;
        self.open.clear();
        self.bytes += recording.len();
        self.segments.push_back(Segment { recording, times: Times::of(&joined) });
        Ok(())
    }

    fn retire(&mut self, is_retired: impl Fn(&Self, &Segment) -> bool) {
        while self.segments.front().is_some_and(|oldest| is_retired(self, oldest)) {
            if let Some(oldest) = self.segments.pop_front() {
                self.bytes -= oldest.recording.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::second;

    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    fn filled(keep_seconds: Option<u64>, max_bytes: usize, seconds: u64) -> Ring {
        let mut ring = Ring::new(keep_seconds.map(Duration::from_secs), max_bytes);
        (0..seconds).for_each(|number| ring.push(second(number)).unwrap());
        ring
    }

    #[test]
    fn the_last_seconds_are_kept_and_each_sample_once() {
        let profile = filled(Some(20), usize::MAX, 103).profile().unwrap();
        let names: Vec<_> = profile.frames().map(|frame| profile.string(frame.name).to_owned()).collect();
        // A segment is retired when all of it is too old.
        let expected: Vec<_> = (80..103).map(|number| format!("f{number}")).collect();
        assert_eq!(names, expected);
        assert_eq!(profile.total_value(), 23);
        assert_eq!(profile.header().started_monotonic_ns, 80 * NS_PER_S);
        assert_eq!(profile.header().duration_ns, 23 * NS_PER_S);
        assert!(profile.ledger().adds_up());
    }

    #[test]
    fn intervals_are_encoded_when_they_have_the_time_of_a_segment() {
        let mut ring = filled(None, usize::MAX, 3);
        assert_eq!((ring.time_to_encode(), ring.segments.len()), (Duration::from_secs(2), 0));
        let long = Profile::joined(&[second(3), second(4), second(5)]);
        ring.push(long).unwrap();
        assert_eq!((ring.time_to_encode(), ring.segments.len()), (SEGMENT, 1));
        let alone = Profile::joined(&(6..12).map(second).collect::<Vec<_>>());
        ring.push(alone).unwrap();
        assert_eq!((ring.segments.len(), ring.open.len()), (2, 0));
        let (profile, expected) = (ring.profile().unwrap(), filled(None, usize::MAX, 12).profile().unwrap());
        assert_eq!((profile.samples(), profile.ledger()), (expected.samples(), expected.ledger()));
        assert_eq!(profile.header().duration_ns, 12 * NS_PER_S);
    }

    #[test]
    fn the_bytes_are_bounded_however_long_intervals_are_kept() {
        let of_one_segment = filled(None, usize::MAX, 5).bytes;
        let max_bytes = of_one_segment * 4;
        let ring = filled(None, max_bytes, 500);
        assert!((max_bytes / 2..=max_bytes).contains(&ring.bytes), "{}", ring.bytes);
        let is_nearly_full = |max_bytes| Ring { max_bytes, ..filled(None, usize::MAX, 5) }.is_nearly_full();
        assert!(is_nearly_full(of_one_segment) && !is_nearly_full(max_bytes));
        assert!((15..=20).contains(&ring.duration().as_secs()), "{:?}", ring.duration());
    }

    #[test]
    fn an_empty_ring_has_an_empty_profile() {
        let mut ring = filled(Some(60), usize::MAX, 12);
        assert_eq!(ring.duration(), Duration::from_secs(12));
        ring.clear();
        assert_eq!((ring.duration(), ring.bytes), (Duration::ZERO, 0));
        assert_eq!(ring.profile().unwrap().total_value(), 0);
    }
}
