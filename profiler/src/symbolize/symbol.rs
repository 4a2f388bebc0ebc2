//! The one shape in which every source of symbols answers.

use super::managed::{ManagedName, Tier};
use crate::{address::ElfAddress, profile::SymbolSource};

/// What a source knows of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbolized {
    /// Where the last name came from. Those before it are always from debug information.
    pub(crate) source: SymbolSource,
    /// Innermost first. The last is the function that the address's code belongs to; those before it are
    /// inlined into their successor. Never empty.
    pub(crate) functions: Vec<Function>,
    /// How the code was compiled, of a managed method whose source says so.
    pub(crate) tier: Option<Tier>,
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Demangled, and in the product's own spelling for managed methods.
    pub(crate) name: String,
    /// File and line (0: the compiler names none), when they were asked for and are known.
    pub(crate) location: Option<(String, u32)>,
}

/// What is known of code without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nearby {
    /// Where its function begins.
    pub(crate) function_start: Option<ElfAddress>,
    /// The symbol that stands near before it: of another function, most likely from the same source file.
    pub(crate) symbol: Option<String>,
}

impl Symbolized {
    /// The answer of a source that knows names only.
    pub(crate) fn of(source: SymbolSource, name: impl Into<String>) -> Self {
        Self { source, functions: vec![Function { name: name.into(), location: None }], tier: None }
    }

    /// The answer of a source of managed methods.
    pub(crate) fn managed(source: SymbolSource, ManagedName { name, tier }: ManagedName<'_>) -> Self {
        Self { tier, ..Self::of(source, name) }
    }
}
