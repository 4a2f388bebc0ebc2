//! What a runtime told, in a capture: one JSON value a line, first what is missing, then the methods in the order in
//! which they came to be.

use std::{borrow::Cow, ops::Range};

use serde::{Deserialize, Serialize};

use super::known::{Gaps, Known};
use profiler_dotnet_symbols::managed::Tier;
use profiler_profile::Reason;

/// No module: its name is a part of the method's.
const NO_MODULE: u64 = 0;

/// As [`Gaps`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct RecordedGaps<'a> {
    malformed_events: u64,
    dropped_events: u64,
    truncated: bool,
    /// A [`Reason`] in its words.
    #[serde(borrow)]
    trouble: Option<Cow<'a, str>>,
    /// Of what time all is known.
    complete_ns: Range<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedMethod<'a> {
    from_ns: u64,
    start: u64,
    size: u64,
    tier: Tier,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// The recording of what is known.
pub(super) fn write(known: &Known) -> Vec<u8> {
    let Gaps { malformed_events, dropped_events, truncated, trouble, complete_until_ns } = known.gaps;
    let trouble = trouble.map(|reason| reason.to_string().into());
    let complete_ns = 0..complete_until_ns;
    let gaps = RecordedGaps { malformed_events, dropped_events, truncated, trouble, complete_ns };
    let mut text = line(&gaps);
    for (start, size, told) in known.methods() {
        let name = told.name.into();
        text.extend(line(&RecordedMethod {
            from_ns: told.exists_from_ns,
            start,
            size,
            tier: told.tier,
            name,
        }));
    }
    text
}

/// What a recording has. Lines that are none of it count as malformed events.
pub(super) fn read(text: &[u8]) -> Known {
    let mut known = Known::default();
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let gaps = lines.next().and_then(|line| serde_json::from_slice::<RecordedGaps<'_>>(line).ok());
    known.gaps = gaps.map(Gaps::from).unwrap_or_default();
    for line in lines {
        match serde_json::from_slice::<RecordedMethod<'_>>(line) {
            Ok(method) => {
                known.add(method.start, method.size, method.from_ns, (NO_MODULE, method.tier, &method.name));
            }
            Err(_) => known.gaps.malformed_events += 1,
        }
    }
    known
}

impl From<RecordedGaps<'_>> for Gaps {
    fn from(recorded: RecordedGaps<'_>) -> Self {
        let RecordedGaps { malformed_events, dropped_events, truncated, trouble, complete_ns } = recorded;
        let trouble =
            trouble.and_then(|words| Reason::ALL.iter().copied().find(|reason| reason.to_string() == words));
        Self { malformed_events, dropped_events, truncated, trouble, complete_until_ns: complete_ns.end }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Numbers and texts have a JSON each.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let mut known = Known::default();
        known.gaps = Gaps {
            malformed_events: 1,
            dropped_events: 2,
            truncated: false,
            trouble: Some(Reason::RuntimeSilent),
            complete_until_ns: 9,
        };
        known.add(0x1000, 16, 0, (NO_MODULE, Tier::QuickJitted, "app!A.Early()"));
        known.add(0x2000, 0, 5, (NO_MODULE, Tier::OptimizedTier1Osr, "free;text \"\u{1b}\n\u{e9}"));
        known.add(0x1000, 16, 9, (NO_MODULE, Tier::OptimizedTier1, "app!A.Late()"));
        known
    }

    #[test]
    fn what_was_recorded_is_what_is_read() {
        let (live, read) = (known(), read(&write(&known())));
        assert_eq!(read.gaps, live.gaps);
        assert_eq!(read.methods().collect::<Vec<_>>(), live.methods().collect::<Vec<_>>());
        for (address, time_ns) in [(0x1000, 0), (0x100f, 8), (0x1000, 9), (0x2000, 5), (0x3000, 5)] {
            assert_eq!(read.lookup(address, time_ns), live.lookup(address, time_ns));
        }
        assert_eq!(read.epoch(9), live.epoch(9));
    }

    #[test]
    fn a_recording_that_was_cut_or_garbled_gives_what_it_has() {
        let text = write(&known());
        for length in 0..text.len() {
            assert!(read(&text[..length]).methods().count() <= 3);
        }
        let garbled = [&text[..], b"{}\n\xff\xfe\n[1,2"].concat();
        let read = read(&garbled);
        assert_eq!((read.methods().count(), read.gaps.malformed_events), (3, 4));
        assert_eq!(super::read(b"nothing\n").gaps, Gaps::default());
    }
}
