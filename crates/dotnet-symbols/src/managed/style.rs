//! Formats the names of managed methods for output: as C# or as the runtime writes them, with or without tier.

use std::fmt::Write;

use super::{Tier, csharp::csharp_name};

/// The style in which names of managed methods are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameStyle {
    /// Prints the normalized name instead of the C# spelling.
    pub raw: bool,
    /// Appends the tier in brackets.
    pub tiers: bool,
}

impl NameStyle {
    /// Formats a name that [`normalize_name`](super::normalize_name) returned.
    #[must_use]
    pub fn apply(self, name: &str, tier: Option<Tier>) -> String {
        let mut styled = if self.raw { name.to_owned() } else { csharp_name(name).into_owned() };
        if let Some(tier) = tier.filter(|_| self.tiers) {
            // Writing to a string cannot fail.
            let _ = write!(styled, "[{tier}]");
        }
        styled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::normalize_name;

    fn styled(style: NameStyle, name: &str) -> String {
        let normalized = normalize_name(name);
        style.apply(&normalized.name, normalized.tier)
    }

    #[test]
    fn names_are_spelled_as_csharp_unless_the_style_is_raw() {
        let name = "void [app] A.B+C`1[System.Int32]::D(string)[OptimizedTier1]";
        let style = |raw, tiers| NameStyle { raw, tiers };
        assert_eq!(styled(style(false, false), name), "app!A.B.C<int>.D(string)");
        assert_eq!(styled(style(false, true), name), "app!A.B.C<int>.D(string)[OptimizedTier1]");
        assert_eq!(styled(style(true, false), name), "app!A.B+C`1[System.Int32].D(class System.String)");
        assert_eq!(
            styled(style(true, true), name),
            "app!A.B+C`1[System.Int32].D(class System.String)[OptimizedTier1]"
        );
    }

    #[test]
    fn a_name_without_a_tier_has_no_suffix() {
        let style = NameStyle { raw: false, tiers: true };
        assert_eq!(styled(style, "void [app] A::B()"), "app!A.B()");
        assert_eq!(
            styled(style, "stub<7> GenerateLookupStub<GenerateLookupStub>"),
            "[stub GenerateLookupStub]"
        );
    }
}
