//! The name of its service that a process has in its environment.

use percent_encoding::percent_decode;

/// Longest service name that is kept, bytes. A longer one is cut.
pub(crate) const MAX_NAME_BYTES: usize = 200;

/// Longest character in UTF-8, bytes.
const MAX_CHAR_BYTES: usize = 4;

/// The service name in an environment (`NAME=VALUE`, each terminated by a zero byte): `OTEL_SERVICE_NAME`, else
/// `service.name` in `OTEL_RESOURCE_ATTRIBUTES` (OpenTelemetry specification, "Environment Variable Specification",
/// section "General SDK Configuration"). An empty variable counts as an unset one.
pub(crate) fn service_name_of(environment: &[u8]) -> Option<String> {
    let variable = |assignment: &[u8]| {
        environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(assignment))
    };
    let named = variable(b"OTEL_SERVICE_NAME=").and_then(bounded);
    named.or_else(|| bounded(&service_name_in(variable(b"OTEL_RESOURCE_ATTRIBUTES=")?)?))
}

/// The value of `service.name` in a list `key=value,key=value`, in which values are percent-encoded (OpenTelemetry
/// specification, "Resource SDK", section "Specifying resource information via an environment variable").
fn service_name_in(attributes: &[u8]) -> Option<Vec<u8>> {
    let mut pairs = attributes.split(|byte| *byte == b',');
    let value = pairs.find_map(|pair| pair.trim_ascii_start().strip_prefix(b"service.name="))?;
    Some(percent_decode(value).collect())
}

/// A text without blanks around it, with at most [`MAX_NAME_BYTES`]; `None` for an empty one.
pub(crate) fn bounded(text: &[u8]) -> Option<String> {
    // With a whole character beyond the limit.
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_NAME_BYTES + MAX_CHAR_BYTES)]);
    let text = text.trim();
    let end = (0..=text.len().min(MAX_NAME_BYTES)).rev().find(|end| text.is_char_boundary(*end))?;
    Some(text[..end].trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// Checks that the service name in an environment is bounded.
#[cfg(fuzzing)]
pub(crate) fn check_service_name(environment: &[u8]) {
    assert!(service_name_of(environment).is_none_or(|name| (1..=MAX_NAME_BYTES).contains(&name.len())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_in(environment: &str) -> Option<String> {
        service_name_of(environment.as_bytes())
    }

    #[test]
    fn the_variable_of_the_name_precedes_that_of_all_attributes() {
        let attributes = "OTEL_RESOURCE_ATTRIBUTES=service.version=1,service.name=shop,a=b\0";
        assert_eq!(name_in(&format!("PATH=/bin\0{attributes}")).as_deref(), Some("shop"));
        assert_eq!(name_in(&format!("{attributes}OTEL_SERVICE_NAME=web\0")).as_deref(), Some("web"));
        assert_eq!(name_in(&format!("OTEL_SERVICE_NAME=\0{attributes}")).as_deref(), Some("shop"));
        assert_eq!(name_in(&format!("XOTEL_SERVICE_NAME=web\0{attributes}")).as_deref(), Some("shop"));
    }

    #[test]
    fn values_of_attributes_are_percent_decoded() {
        let name = |value: &str| name_in(&format!("OTEL_RESOURCE_ATTRIBUTES=a=b, service.name={value}\0"));
        assert_eq!(name("a%2Cb%3D%c3%a9").as_deref(), Some("a,b=\u{e9}"));
        assert_eq!(name("100%").as_deref(), Some("100%"));
        assert_eq!(name("%20"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn an_environment_without_a_name_has_none() {
        for environment in
            ["", "\0\0", "PATH=/bin\0", "OTEL_RESOURCE_ATTRIBUTES=\0", "OTEL_RESOURCE_ATTRIBUTES=,=,"]
        {
            assert_eq!(name_in(environment), None, "{environment:?}");
        }
    }

    #[test]
    fn a_name_is_bounded_and_text() {
        let long = name_in(&format!("OTEL_SERVICE_NAME=x{}\0", "\u{e9}".repeat(1 << 20))).unwrap();
        assert!(long.len() <= MAX_NAME_BYTES && long.starts_with("x\u{e9}"), "{}", long.len());
        let broken = service_name_of(&[&b"OTEL_SERVICE_NAME="[..], &[0xff; 300]].concat()).unwrap();
        assert!(broken.len() <= MAX_NAME_BYTES && broken.chars().all(|c| c == '\u{fffd}'));
    }
}
