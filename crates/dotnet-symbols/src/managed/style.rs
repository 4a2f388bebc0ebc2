//! How the names of managed methods are shown.

use std::fmt::Write;

use super::{Tier, readable::readable};

/// How the names of managed methods are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameStyle {
    /// As the runtime spells them, and not as C# does.
    pub raw: bool,
    /// With how the runtime compiled the method.
    pub tiers: bool,
}

impl NameStyle {
    /// A name as [`normalise`](super::normalise) gives it, in this style.
    #[must_use]
    pub fn apply(self, name: &str, tier: Option<Tier>) -> String {
        let mut styled = if self.raw { name.to_owned() } else { readable(name).into_owned() };
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
    use crate::managed::normalise;

    fn shown(style: NameStyle, name: &str) -> String {
        let normal = normalise(name);
        style.apply(&normal.name, normal.tier)
    }

    #[test]
    fn names_read_as_csharp_unless_the_runtimes_are_asked_for() {
        let name = "void [app] A.B+C`1[System.Int32]::D(string)[OptimizedTier1]";
        let style = |raw, tiers| NameStyle { raw, tiers };
        assert_eq!(shown(style(false, false), name), "app!A.B.C<int>.D(string)");
        assert_eq!(shown(style(false, true), name), "app!A.B.C<int>.D(string)[OptimizedTier1]");
        assert_eq!(shown(style(true, false), name), "app!A.B+C`1[System.Int32].D(class System.String)");
        assert_eq!(
            shown(style(true, true), name),
            "app!A.B+C`1[System.Int32].D(class System.String)[OptimizedTier1]"
        );
    }

    #[test]
    fn what_has_no_tier_shows_none() {
        let style = NameStyle { raw: false, tiers: true };
        assert_eq!(shown(style, "void [app] A::B()"), "app!A.B()");
        assert_eq!(
            shown(style, "stub<7> GenerateLookupStub<GenerateLookupStub>"),
            "[stub GenerateLookupStub]"
        );
    }
}
