//! The one shape in which every source of symbols answers.

use profiler_addresses::ElfAddress;
use profiler_dotnet_symbols::managed::{ManagedName, Tier};
use profiler_profile::SymbolSource;

/// What a source knows of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbolized {
    /// Where the last name came from. Those before it are always from debug information.
    pub source: SymbolSource,
    /// Innermost first. The last is the function that the address's code belongs to; those before it are
    /// inlined into their successor. Never empty.
    pub functions: Vec<Function>,
    /// How the code was compiled, of a managed method whose source says so.
    pub tier: Option<Tier>,
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled, and in the product's own spelling for managed methods.
    pub name: String,
    /// File and line (0: the compiler names none), when they were asked for and are known.
    pub location: Option<(String, u32)>,
}

/// What is known of code without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nearby {
    /// Where its function begins.
    pub function_start: Option<ElfAddress>,
    /// The symbol that stands near before it: of another function, most likely from the same source file.
    pub symbol: Option<String>,
}

impl Symbolized {
    /// The answer of a source that knows names only.
    pub fn of(source: SymbolSource, name: impl Into<String>) -> Self {
        Self { source, functions: vec![Function { name: name.into(), location: None }], tier: None }
    }

    /// The answer of a source of managed methods.
    pub fn managed(source: SymbolSource, ManagedName { name, tier }: ManagedName<'_>) -> Self {
        Self { tier, ..Self::of(source, name) }
    }
}
