//! The rules of the definitions of OTLP (`profiles.proto`) for requests.

use std::collections::HashSet;

use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary};
use prost::Message;

use super::decoded_request::DecodedRequest;

/// Fails if a request breaks a rule.
pub(super) fn check(decoded: &DecodedRequest) {
    let dictionary = decoded.dictionary();
    check_first_elements(dictionary);
    check_duplicates(dictionary);
    check_orphans(decoded);
    let profiles = decoded.profiles();
    assert!(!profiles.is_empty(), "no profile");
    profiles.into_iter().for_each(|(_, profile)| check_profile(profile));
    let mut seen = HashSet::new();
    for resource in &decoded.request.resource_profiles {
        let [scope] = &*resource.scope_profiles else { panic!("not one scope") };
        assert_eq!(scope.scope.as_ref().unwrap().name, "profiler");
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let keys: HashSet<_> = attributes.iter().map(|entry| &entry.key).collect();
        assert_eq!(keys.len(), attributes.len(), "a key twice");
        for profile in &scope.profiles {
            let is_new = seen.insert(format!("{attributes:?}{:?}", decoded.types(profile)));
            assert!(is_new, "more than one profile of a resource and event");
        }
    }
}

fn check_first_elements(dictionary: &ProfilesDictionary) {
    assert_eq!(dictionary.string_table[0], "");
    assert_eq!(dictionary.mapping_table[0], Default::default());
    assert_eq!(dictionary.location_table[0], Default::default());
    assert_eq!(dictionary.function_table[0], Default::default());
    assert_eq!(dictionary.attribute_table[0], Default::default());
    assert_eq!(dictionary.stack_table[0], Default::default());
    assert_eq!(dictionary.link_table, [Default::default()]);
}

fn check_duplicates(dictionary: &ProfilesDictionary) {
    fn check<T: Message>(table: &[T]) {
        let messages: HashSet<_> = table.iter().map(Message::encode_to_vec).collect();
        assert_eq!(messages.len(), table.len(), "an element twice");
    }
    let strings: HashSet<_> = dictionary.string_table.iter().collect();
    assert_eq!(strings.len(), dictionary.string_table.len(), "a text twice");
    check(&dictionary.mapping_table);
    check(&dictionary.location_table);
    check(&dictionary.function_table);
    check(&dictionary.attribute_table);
    check(&dictionary.stack_table);
}

/// Every element of a table but the first is referred to, and every index is that of an element.
fn check_orphans(decoded: &DecodedRequest) {
    let tables = decoded.dictionary();
    let samples = || decoded.profiles().into_iter().flat_map(|(_, profile)| &profile.samples);
    let attributes = tables.mapping_table.iter().flat_map(|mapping| &mapping.attribute_indices);
    let attributes =
        attributes.chain(tables.location_table.iter().flat_map(|place| &place.attribute_indices));
    let attributes = attributes.chain(samples().flat_map(|sample| &sample.attribute_indices));
    check_references(attributes.copied(), tables.attribute_table.len());
    check_references(samples().map(|sample| sample.stack_index), tables.stack_table.len());
    let locations = tables.stack_table.iter().flat_map(|stack| &stack.location_indices);
    check_references(locations.copied(), tables.location_table.len());
    let mappings = tables.location_table.iter().map(|location| location.mapping_index);
    check_references(mappings, tables.mapping_table.len());
    let lines = tables.location_table.iter().flat_map(|location| &location.lines);
    check_references(lines.map(|line| line.function_index), tables.function_table.len());
    let types =
        decoded.profiles().into_iter().flat_map(|(_, profile)| [profile.sample_type, profile.period_type]);
    let types = types.flatten().flat_map(|kind| [kind.type_strindex, kind.unit_strindex]);
    let functions = tables.function_table.iter();
    let functions = functions.flat_map(|function| [function.name_strindex, function.filename_strindex]);
    let files = tables.mapping_table.iter().map(|mapping| mapping.filename_strindex);
    let keys = tables.attribute_table.iter().map(|attribute| attribute.key_strindex);
    check_references(types.chain(functions).chain(files).chain(keys), tables.string_table.len());
}

fn check_references(indices: impl Iterator<Item = i32>, length: usize) {
    let used: HashSet<_> = indices.chain([0]).map(|index| usize::try_from(index).unwrap()).collect();
    assert_eq!(
        used.iter().max(),
        Some(&(length - 1)),
        "an index out of range, or elements that are not used"
    );
    assert_eq!(used.len(), length, "elements that are not used");
}

fn check_profile(profile: &Profile) {
    let mut identities = HashSet::new();
    for sample in &profile.samples {
        assert!(sample.timestamps_unix_nano.is_empty() && sample.link_index == 0);
        assert_eq!(sample.values.len(), 1);
        assert!(identities.insert((sample.stack_index, &sample.attribute_indices)), "a sample twice");
    }
}
