//! Filters of resources by their attributes.
//!
//! ```text
//! filter    = condition { "," condition }     all conditions hold
//! condition = name ( "=" | "!=" ) pattern
//! pattern   = { any character but "," | "*" } "*" matches any text
//! ```
//!
//! A resource without the attribute has no value: `=` does not hold, and `!=` holds.

use std::str::FromStr;

use crate::Resource;

/// A filter of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

/// A text that is not a valid filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a condition such as k8s.namespace.name=shop or service.name!=test-*")]
pub struct InvalidFilter {
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    attribute: String,
    is_negated: bool,
    pattern: String,
}

impl Filter {
    /// Whether all conditions hold for a resource.
    #[must_use]
    pub fn matches(&self, resource: &Resource) -> bool {
        self.conditions.iter().all(|condition| condition.holds(resource))
    }
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let conditions = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { conditions })
    }
}

impl Condition {
    fn holds(&self, resource: &Resource) -> bool {
        let value = resource.attributes.get(&self.attribute);
        value.is_some_and(|value| matches(&self.pattern, value)) != self.is_negated
    }
}

impl FromStr for Condition {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let invalid = || InvalidFilter { text: text.to_owned() };
        let (left, pattern) = text.split_once('=').ok_or_else(invalid)?;
        let (attribute, is_negated) = left.strip_suffix('!').map_or((left, false), |name| (name, true));
        let attribute = attribute.trim();
        if attribute.is_empty() || attribute.contains(['*', '!']) {
            return Err(invalid());
        }
        Ok(Self { attribute: attribute.to_owned(), is_negated, pattern: pattern.trim().to_owned() })
    }
}

/// Whether a text matches a pattern. Takes time in proportion to the product of their lengths at most.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The first place leaves the most text for the parts that follow.
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(attributes: &[(&str, &str)]) -> Resource {
        let pairs = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Resource { attributes: pairs.collect() }
    }

    fn holds(filter: &str) -> bool {
        let shop = resource(&[("k8s.namespace.name", "shop"), ("service.name", "cart-api")]);
        filter.parse::<Filter>().unwrap().matches(&shop)
    }

    #[test]
    fn all_conditions_hold_for_a_resource() {
        for filter in [
            "k8s.namespace.name=shop",
            "k8s.namespace.name = shop , service.name=cart-*",
            "service.name!=test-*",
            "k8s.pod.name!=web",
            "k8s.pod.name!=*",
            "service.name=*",
        ] {
            assert!(holds(filter), "{filter}");
        }
        for filter in [
            "k8s.namespace.name=sho",
            "k8s.namespace.name=shop,service.name=web",
            "service.name!=*api",
            "k8s.pod.name=*",
            "k8s.pod.name=",
        ] {
            assert!(!holds(filter), "{filter}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("*", ""),
            ("a*", "a"),
            ("*b", "ab"),
            ("a*c", "abc"),
            ("a*b*c", "aXbYbZc"),
            ("**", "x"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*a", "a"), ("a*b", "abc"), ("*x*", "abc"), ("", "a")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn other_texts_are_no_filter() {
        for text in ["", "shop", "=shop", "!=shop", "a=b,", "a=b,,c=d", "a*=b", "a!!=b"] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains("k8s.namespace.name=shop"), "{error}");
        }
    }
}
