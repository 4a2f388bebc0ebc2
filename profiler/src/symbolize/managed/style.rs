//! How the names of managed methods are shown.

use std::fmt::Write;

use super::readable::readable;
use crate::symbolize::symbol::Symbolized;

/// How the names of managed methods are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameStyle {
    /// As the runtime spells them, and not as C# does.
    pub(crate) raw: bool,
    /// With how the runtime compiled the method.
    pub(crate) tiers: bool,
}

impl NameStyle {
    /// What a source said, in this style.
    pub(crate) fn apply(self, mut symbolized: Symbolized) -> Symbolized {
        for function in &mut symbolized.functions {
            if !self.raw {
                function.name = readable(&function.name).into_owned();
            }
            if let Some(tier) = symbolized.tier.filter(|_| self.tiers) {
                let _ = write!(function.name, "[{tier}]");
            }
        }
        symbolized
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{profile::SymbolSource, symbolize::managed::normalise};

    fn shown(style: NameStyle, name: &str) -> String {
        let symbolized = Symbolized::managed(SymbolSource::PerfMap, normalise(name));
        style.apply(symbolized).functions.remove(0).name
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
