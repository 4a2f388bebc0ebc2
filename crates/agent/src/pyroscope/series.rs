//! A series of a window: the samples of an event of a resource, in as many profiles as the limits need.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use flate2::{Compression, write::GzEncoder};
use profiler_profile::{EventId, Header, Ledger, Profile, ProfileCopy, Sample, StackId, ThreadState, sum};
use profiler_profile_formats::write_aggregated_pprof;
use prost::Message as _;

use super::{
    PyroscopeOptions, labels,
    message::{LabelPair, PushRequest, RawProfileSeries, RawSample},
};
use crate::{Encoded, Message, Window};

/// The samples of an event of a resource.
#[derive(Debug)]
pub(super) struct Series<'a> {
    profile: &'a Profile,
    options: &'a PyroscopeOptions,
    event: EventId,
    labels: Vec<LabelPair>,
    stacks: Vec<StackSum>,
}

/// The samples with one stack and one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StackSum {
    stack: StackId,
    state: Option<ThreadState>,
    value: u64,
    samples: u64,
}

impl<'a> Series<'a> {
    /// The series of an event, one for each resource with samples.
    pub(super) fn of(
        window: &'a Window,
        event: EventId,
        options: &'a PyroscopeOptions,
    ) -> impl Iterator<Item = Self> {
        let profile = window.profile();
        stacks_by_resource(window, event).into_iter().map(move |(resource, stacks)| {
            let labels = labels::of(&window.resources()[resource], profile.event(event));
            Self { profile, options, event, labels, stacks }
        })
    }

    /// Adds the messages of the series.
    pub(super) fn encode_into(&self, encoded: &mut Encoded) {
        self.encode(&self.stacks, encoded);
    }

    /// Adds the messages of some stacks, which are divided until no limit is exceeded.
    fn encode(&self, stacks: &[StackSum], encoded: &mut Encoded) {
        if stacks.len() <= self.options.max_samples.max(1)
            && let Some(body) = self.body(stacks)
        {
            let samples = sum::of(stacks.iter().map(|stack| stack.samples));
            let started_unix_ns = self.profile.header().started_unix_ns;
            encoded.messages.push(Message { started_unix_ns, samples, body });
            return;
        }
        match stacks {
            [] => {}
            [stack] => sum::add(&mut encoded.too_large, stack.samples),
            _ => {
                let (first, second) = stacks.split_at(stacks.len() / 2);
                self.encode(first, encoded);
                self.encode(second, encoded);
            }
        }
    }

    /// The request with the profile of some stacks; `None` where the profile is too large.
    fn body(&self, stacks: &[StackSum]) -> Option<Vec<u8>> {
        let mut raw_profile = Vec::new();
        write_aggregated_pprof(&self.part(stacks), self.event, &mut raw_profile).ok()?;
        if uncompressed_bytes(&raw_profile)? > self.options.max_profile_bytes {
            return None;
        }
        let samples = vec![RawSample { raw_profile }];
        let request = PushRequest { series: vec![RawProfileSeries { labels: self.labels.clone(), samples }] };
        compressed(&request.encode_to_vec()).ok()
    }

    /// The profile of some stacks, as samples of one thread.
    fn part(&self, stacks: &[StackSum]) -> Profile {
        let mut copy = ProfileCopy::of(self.profile);
        let process = copy.builder().process(0, "");
        let thread = copy.builder().thread(process, 0, "");
        for StackSum { stack, state, value, .. } in stacks {
            let is_kept = |index| index < self.options.max_frames;
            let stack = copy.stack_with(self.profile.stack(*stack), is_kept);
            let (event, state, value) = (self.event, *state, *value);
            copy.builder().add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
        }
        let Header { started_unix_ns, duration_ns, .. } = *self.profile.header();
        copy.finish_with(Header { started_unix_ns, duration_ns, ..Header::default() }, Ledger::default())
    }
}

/// The stacks of each resource with samples of an event, by the index of the resource.
fn stacks_by_resource(window: &Window, event: EventId) -> BTreeMap<usize, Vec<StackSum>> {
    let profile = window.profile();
    let mut sums = BTreeMap::new();
    for sample in profile.samples_of(event) {
        let resource = window.resource_of(profile.thread(sample.thread).process);
        let (stack, state) = (sample.stack, sample.state);
        let of_stack =
            sums.entry((resource, stack, state)).or_insert(StackSum { stack, state, value: 0, samples: 0 });
        sum::add(&mut of_stack.value, sample.value);
        sum::add(&mut of_stack.samples, profile.event(event).sample_count(sample.value));
    }
    let mut stacks = BTreeMap::<_, Vec<_>>::new();
    for ((resource, ..), of_stack) in sums {
        stacks.entry(resource).or_default().push(of_stack);
    }
    stacks
}

/// The length of the content of a gzip member below 4 GiB: its last field, `ISIZE` (RFC 1952, section 2.3.1).
fn uncompressed_bytes(gzip: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*gzip.last_chunk()?)).ok()
}

/// The request, compressed. Its profile is compressed already, so that only labels become shorter.
fn compressed(request: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(request)?;
    encoder.finish()
}
