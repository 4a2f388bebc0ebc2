//! The rules by which Parca accepts a request (`pkg/normalizer/otel.go` in parca-dev/parca). Those that are also rules of the
//! specification are in the module of these.

use opentelemetry_proto::tonic::profiles::v1development::Profile;

use super::decoded_request::{DecodedRequest, text};

/// Fails if a request breaks a rule.
pub(super) fn check(decoded: &DecodedRequest) {
    assert!(!decoded.request.resource_profiles.is_empty(), "resource profiles are empty");
    for resource in &decoded.request.resource_profiles {
        let message = resource.resource.as_ref().expect("a resource that is nil is dereferenced");
        for attribute in &message.attributes {
            assert!(!attribute.key.is_empty(), "attribute key is empty");
            // Only attributes with a text become labels, without white space around it.
            assert!(!text(attribute.value.as_ref()).trim().is_empty(), "attribute value is nil");
        }
        for scope in &resource.scope_profiles {
            assert!(!scope.scope.as_ref().expect("a scope that is nil is dereferenced").name.is_empty());
            scope.profiles.iter().for_each(check_profile);
        }
    }
    for attribute in &decoded.dictionary().attribute_table[1..] {
        assert!(
            attribute.value.as_ref().and_then(|value| value.value.as_ref()).is_some(),
            "attribute value is nil"
        );
    }
}

fn check_profile(profile: &Profile) {
    assert!(profile.sample_type.is_some(), "sample type is dereferenced");
    assert!(!profile.samples.is_empty(), "sample is empty");
    assert!(profile.period_type.is_some(), "period type is nil");
    assert!(profile.period >= 0, "period must be non-negative");
    assert!(profile.profile_id.is_empty(), "profile ID must be 16 bytes long");
}
