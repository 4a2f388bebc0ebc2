//! Builds a request sample by sample, within the limits of the backend.

use std::{borrow::Cow, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use indexmap::IndexMap;
use prost::Message as _;

use super::{
    THREAD_NAME, THREAD_STATE,
    dictionary::{Dictionary, field_bytes},
    messages::{
        ExportProfilesServiceRequest, InstrumentationScope, Profile, Resource, ResourceProfiles, Sample,
        ScopeProfiles, ValueType,
    },
    rows::Row,
    shared_parts::SharedParts,
    stacks::StackIndices,
    text,
    value_kind::TypeAndUnit,
};
use profiler_profile::EventId;

/// The tag and length of a message whose length is not known yet, bytes.
const MAX_PREFIX_BYTES: usize = 6;

/// A profile without samples: its prefix, time, duration, two types and the period, bytes.
const MAX_PROFILE_HEADER_BYTES: usize = MAX_PREFIX_BYTES + 9 + 11 + 2 * 14 + 11;

/// What pprof has beside samples and tables, bytes: types, times, the texts of units.
const MAX_PPROF_HEADER_BYTES: usize = 256;

/// A request to which samples are added.
pub(super) struct Request<'a> {
    shared: &'a SharedParts<'a>,
    dictionary: Dictionary<'a>,
    stacks: StackIndices<'a>,
    /// In the order of the rows: all profiles of a resource follow one another.
    profiles: Vec<OpenProfile>,
    /// An upper bound of the size of all but the dictionary.
    bytes: usize,
    /// As [`crate::Message::samples`] counts them.
    samples: u64,
}

struct OpenProfile {
    resource: usize,
    event: EventId,
    sample_type: ValueType,
    period_type: ValueType,
    period: i64,
    samples: IndexMap<SampleKey, i64>,
    /// An upper bound of the size of its samples in pprof.
    pprof_bytes: usize,
}

/// The identity of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SampleKey {
    stack_index: i32,
    /// Those that are 0 are absent.
    attribute_indices: [i32; 2],
}

/// A request that is complete.
pub(super) struct FinishedRequest {
    pub(super) samples: u64,
    /// Compressed; `None` if the compression failed.
    pub(super) body: Option<Vec<u8>>,
}

impl<'a> Request<'a> {
    pub(super) fn new(shared: &'a SharedParts<'a>) -> Self {
        Self {
            shared,
            dictionary: Dictionary::new(),
            stacks: StackIndices::new(
                shared.window.profile(),
                &shared.module_limits,
                shared.options.max_frames,
            ),
            profiles: Vec::new(),
            bytes: MAX_PREFIX_BYTES,
            samples: 0,
        }
    }

    /// Adds a row with the value that is sent, unless a limit is exceeded. After that no more row may be added.
    pub(super) fn add(&mut self, row: &Row, value: i64) -> bool {
        let before = self.dictionary.checkpoint();
        let is_added = self.try_add(row, value);
        if !is_added {
            self.dictionary.restore(&before);
        }
        is_added
    }

    fn try_add(&mut self, row: &Row, value: i64) -> bool {
        let kind = self.shared.kind(row.event);
        let key = self.key(row);
        let open = self.profiles.last().filter(|profile| profile.is_of(row));
        let sum = open.and_then(|profile| profile.samples.get(&key)).copied();
        let Some(sum_with_row) = sum.unwrap_or_default().checked_add(value) else { return false };
        if sum_with_row > kind.max_value {
            return false;
        }
        let opened = open.is_none().then(|| self.opened_profile(row));
        let mut bytes = self.bytes;
        if opened.is_some() {
            let is_new_resource = self.profiles.last().is_none_or(|last| last.resource != row.resource);
            bytes += MAX_PROFILE_HEADER_BYTES;
            bytes += if is_new_resource { self.resource_bytes(row.resource) } else { 0 };
        }
        let open = opened.as_ref().or(self.profiles.last());
        let mut pprof_bytes = open.map_or(0, |profile| profile.pprof_bytes);
        let mut samples = open.map_or(0, |profile| profile.samples.len());
        if sum.is_none() {
            bytes += field_bytes(sample(key, i64::MAX).encoded_len());
            pprof_bytes += self.pprof_bytes_of_sample(key);
            samples += 1;
        }
        if !self.fits(bytes, pprof_bytes, samples) {
            return false;
        }
        self.profiles.extend(opened);
        if let Some(profile) = self.profiles.last_mut() {
            profile.samples.insert(key, sum_with_row);
            profile.pprof_bytes = pprof_bytes;
        }
        self.bytes = bytes;
        self.samples = self.samples.saturating_add(row.samples);
        true
    }

    fn fits(&self, bytes: usize, pprof_bytes: usize, samples: usize) -> bool {
        let (options, dictionary) = (self.shared.options, self.dictionary.size());
        bytes + dictionary.otlp <= options.max_request_bytes
            && MAX_PPROF_HEADER_BYTES + pprof_bytes + dictionary.pprof <= options.max_profile_bytes
            && samples <= options.max_profile_samples
    }

    /// The identity of the sample of a row, whose parts are added to the dictionary.
    fn key(&mut self, row: &Row) -> SampleKey {
        let profile = self.shared.window.profile();
        let stack_index = self.stacks.index(row.stack, &mut self.dictionary);
        let state = row.state.map(|state| Cow::Borrowed(state.option()));
        let name = row.thread_name.map(|name| text::clean(profile.string(name)));
        let mut attribute = |key, value: Option<Cow<'a, str>>| {
            let value = value.filter(|value| !value.trim().is_empty());
            value.map_or(0, |value| self.dictionary.attribute(key, value))
        };
        let attribute_indices = [attribute(THREAD_STATE, state), attribute(THREAD_NAME, name)];
        SampleKey { stack_index, attribute_indices }
    }

    /// An empty profile for a row, whose types are added to the dictionary.
    fn opened_profile(&mut self, row: &Row) -> OpenProfile {
        let kind = self.shared.kind(row.event);
        OpenProfile {
            resource: row.resource,
            event: row.event,
            sample_type: self.value_type(&kind.sample_type),
            period_type: self.value_type(&kind.period_type),
            period: kind.period,
            samples: IndexMap::new(),
            pprof_bytes: 0,
        }
    }

    fn value_type(&mut self, kind: &'a TypeAndUnit) -> ValueType {
        let type_strindex = self.dictionary.string(Cow::Borrowed(&kind.name));
        ValueType { type_strindex, unit_strindex: self.dictionary.string(Cow::Borrowed(kind.unit)) }
    }

    fn resource_bytes(&self, resource: usize) -> usize {
        let attributes = field_bytes(self.shared.resources[resource].encoded_len());
        2 * MAX_PREFIX_BYTES + attributes + field_bytes(self.shared.scope.encoded_len())
    }

    fn pprof_bytes_of_sample(&self, key: SampleKey) -> usize {
        /// Tag and length of the sample and its values, the value, two labels with two indices each.
        const HEADER_BYTES: usize = 5 + 2 + 10 + 2 * (2 + 10);
        HEADER_BYTES + self.dictionary.pprof_bytes_of_stack(key.stack_index)
    }

    /// The request with its body; `None` if it has no samples.
    pub(super) fn finish(self) -> Option<FinishedRequest> {
        if self.profiles.is_empty() {
            return None;
        }
        let Self { shared, dictionary, profiles, samples, .. } = self;
        let mut resource_profiles: Vec<ResourceProfiles> = Vec::new();
        let mut last_resource = None;
        for profile in profiles {
            if last_resource.replace(profile.resource) != Some(profile.resource) {
                let resource = shared.resources[profile.resource].clone();
                resource_profiles.push(without_profiles(resource, shared.scope.clone()));
            }
            let scope_profiles = resource_profiles.last_mut().and_then(|last| last.scope_profiles.last_mut());
            if let Some(scope_profiles) = scope_profiles {
                scope_profiles.profiles.push(profile.into_message(shared));
            }
        }
        let dictionary = Some(dictionary.into_message());
        let message = ExportProfilesServiceRequest { resource_profiles, dictionary };
        Some(FinishedRequest { samples, body: compressed(&message) })
    }
}

impl OpenProfile {
    fn is_of(&self, row: &Row) -> bool {
        (self.resource, self.event) == (row.resource, row.event)
    }

    fn into_message(self, shared: &SharedParts<'_>) -> Profile {
        let header = shared.window.profile().header();
        Profile {
            sample_type: Some(self.sample_type),
            samples: self.samples.into_iter().map(|(key, value)| sample(key, value)).collect(),
            time_unix_nano: header.started_unix_ns,
            duration_nano: header.duration_ns,
            period_type: Some(self.period_type),
            period: self.period,
            ..Profile::default()
        }
    }
}

fn sample(key: SampleKey, value: i64) -> Sample {
    let attributes = key.attribute_indices.into_iter().filter(|index| *index != 0);
    Sample {
        stack_index: key.stack_index,
        attribute_indices: attributes.collect(),
        link_index: 0,
        values: vec![value],
        timestamps_unix_nano: Vec::new(),
    }
}

fn without_profiles(resource: Resource, scope: InstrumentationScope) -> ResourceProfiles {
    let scope_profiles =
        ScopeProfiles { scope: Some(scope), profiles: Vec::new(), schema_url: String::new() };
    ResourceProfiles {
        resource: Some(resource),
        scope_profiles: vec![scope_profiles],
        schema_url: String::new(),
    }
}

/// `None` is an error of the compression, which has none while it writes to memory.
fn compressed(message: &ExportProfilesServiceRequest) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message.encode_to_vec()).ok()?;
    encoder.finish().ok()
}
