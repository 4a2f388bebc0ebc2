//! The symbols at an address, as every symbol source returns them.

use profiler_addresses::ElfAddress;
use profiler_dotnet_symbols::managed::{ManagedName, Tier};
use profiler_profile::SymbolSource;

/// The functions at an address, from one symbol source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbolized {
    /// The source of the last function. Inlined functions are always from debug information.
    pub source: SymbolSource,
    /// Innermost first. Each function but the last is inlined into its successor. Never empty.
    pub functions: Vec<Function>,
    /// The compilation tier of a managed method, when the source contains it.
    pub tier: Option<Tier>,
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The demangled name; of managed methods, the C# spelling.
    pub name: String,
    /// File and line (0: unknown), when lines are enabled and the debug information contains them.
    pub location: Option<(String, u32)>,
}

/// What is known about code without a symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolHint {
    /// Start address of the function.
    pub function_start: Option<ElfAddress>,
    /// The symbol of another function that lies shortly before the address, most likely from the same source file.
    pub preceding_symbol: Option<String>,
}

impl Symbolized {
    /// One function without a source location.
    pub fn new(source: SymbolSource, name: impl Into<String>) -> Self {
        Self { source, functions: vec![Function { name: name.into(), location: None }], tier: None }
    }

    /// One managed method.
    pub fn from_managed(source: SymbolSource, ManagedName { name, tier }: ManagedName<'_>) -> Self {
        Self { tier, ..Self::new(source, name) }
    }
}
