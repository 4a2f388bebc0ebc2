//! The messages of OTLP profiles, from the crate `opentelemetry-proto`. `docs/design/otlp.md` has the reasons.

use std::hash::{Hash, Hasher};

pub(super) use opentelemetry_proto::tonic::{
    collector::profiles::v1development::ExportProfilesServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    profiles::v1development::{
        Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
        ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
    },
    resource::v1::Resource,
};

/// A location as an element of a set. [`Location`] has no hash, though all its fields are integers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DistinctLocation(pub(super) Location);

impl Eq for DistinctLocation {}

impl Hash for DistinctLocation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Location { mapping_index, address, lines, attribute_indices } = &self.0;
        (mapping_index, address, lines, attribute_indices).hash(state);
    }
}
