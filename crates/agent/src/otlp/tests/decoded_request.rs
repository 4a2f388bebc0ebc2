//! Decoded requests, with texts in place of indices.

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::{
    collector::profiles::v1development::ExportProfilesServiceRequest,
    common::v1::{AnyValue, any_value::Value},
    profiles::v1development::{Location, Mapping, Profile, ProfilesDictionary, Sample},
};
use prost::Message as _;

use crate::Message;

/// A request and the number of its bytes before compression.
pub(super) struct DecodedRequest {
    pub(super) request: ExportProfilesServiceRequest,
    pub(super) bytes: usize,
}

/// A sample with texts in place of indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampleTexts {
    pub(super) service: String,
    /// Type and unit of values and period.
    pub(super) types: [String; 4],
    pub(super) attributes: Vec<(String, String)>,
    /// Leaf first; inlined functions are frames of their own.
    pub(super) frames: Vec<FrameTexts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameTexts {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: i64,
    pub(super) module: String,
    pub(super) build_id: String,
    pub(super) frame_type: String,
    pub(super) address: u64,
}

pub(super) fn decode(message: &Message) -> DecodedRequest {
    let mut bytes = Vec::new();
    GzDecoder::new(&*message.body).read_to_end(&mut bytes).unwrap();
    let request = ExportProfilesServiceRequest::decode(&*bytes).unwrap();
    DecodedRequest { request, bytes: bytes.len() }
}

impl DecodedRequest {
    pub(super) fn dictionary(&self) -> &ProfilesDictionary {
        self.request.dictionary.as_ref().unwrap()
    }

    pub(super) fn string(&self, index: i32) -> &str {
        &self.dictionary().string_table[usize::try_from(index).unwrap()]
    }

    /// The attributes at these indices, by key.
    pub(super) fn attributes(&self, indices: &[i32]) -> Vec<(String, String)> {
        let table = &self.dictionary().attribute_table;
        let entries = indices.iter().map(|index| &table[usize::try_from(*index).unwrap()]);
        entries
            .map(|entry| (self.string(entry.key_strindex).to_owned(), text(entry.value.as_ref()).to_owned()))
            .collect()
    }

    /// Each profile with the attributes of its resource.
    pub(super) fn profiles(&self) -> Vec<(BTreeMap<String, String>, &Profile)> {
        let mut profiles = Vec::new();
        for resource in &self.request.resource_profiles {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let attributes: BTreeMap<_, _> = attributes
                .iter()
                .map(|entry| (entry.key.clone(), text(entry.value.as_ref()).to_owned()))
                .collect();
            let of_scopes = resource.scope_profiles.iter().flat_map(|scope| &scope.profiles);
            profiles.extend(of_scopes.map(|profile| (attributes.clone(), profile)));
        }
        profiles
    }

    /// The types of a profile: those of its values and its period, each with its unit.
    pub(super) fn types(&self, profile: &Profile) -> [String; 4] {
        let (values, period) = (profile.sample_type.unwrap(), profile.period_type.unwrap());
        [values.type_strindex, values.unit_strindex, period.type_strindex, period.unit_strindex]
            .map(|index| self.string(index).to_owned())
    }

    pub(super) fn locations(&self, sample: &Sample) -> Vec<&Location> {
        let stack = &self.dictionary().stack_table[usize::try_from(sample.stack_index).unwrap()];
        let location = |index: &i32| &self.dictionary().location_table[usize::try_from(*index).unwrap()];
        stack.location_indices.iter().map(location).collect()
    }

    pub(super) fn mapping(&self, location: &Location) -> &Mapping {
        &self.dictionary().mapping_table[usize::try_from(location.mapping_index).unwrap()]
    }

    pub(super) fn frames(&self, sample: &Sample) -> Vec<FrameTexts> {
        self.locations(sample).into_iter().flat_map(|location| self.frames_of(location)).collect()
    }

    fn frames_of<'a>(&'a self, location: &'a Location) -> impl Iterator<Item = FrameTexts> + 'a {
        let only = |attributes: Vec<(String, String)>| {
            attributes.into_iter().map(|(_, value)| value).next().unwrap_or_default()
        };
        let mapping = self.mapping(location);
        let build_id = only(self.attributes(&mapping.attribute_indices));
        let frame_type = only(self.attributes(&location.attribute_indices));
        location.lines.iter().map(move |line| {
            let function = &self.dictionary().function_table[usize::try_from(line.function_index).unwrap()];
            FrameTexts {
                function: self.string(function.name_strindex).to_owned(),
                file: self.string(function.filename_strindex).to_owned(),
                line: line.line,
                module: self.string(mapping.filename_strindex).to_owned(),
                build_id: build_id.clone(),
                frame_type: frame_type.clone(),
                address: location.address,
            }
        })
    }

    /// The values of all samples.
    pub(super) fn samples(&self) -> Vec<(SampleTexts, i64)> {
        let mut samples = Vec::new();
        for (resource, profile) in self.profiles() {
            samples.extend(profile.samples.iter().map(|sample| {
                let texts = SampleTexts {
                    service: resource.get("service.name").cloned().unwrap_or_default(),
                    types: self.types(profile),
                    attributes: self.attributes(&sample.attribute_indices),
                    frames: self.frames(sample),
                };
                (texts, sample.values[0])
            }));
        }
        samples
    }
}

/// The text of an attribute: all values that the encoder writes are texts.
pub(super) fn text(value: Option<&AnyValue>) -> &str {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        None => "",
        other => panic!("no text: {other:?}"),
    }
}
