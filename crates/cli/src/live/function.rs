//! Functions of a profile: groups frames of the same code, regardless of their addresses.

use indexmap::IndexSet;
use profiler_profile::{CodeKind, FrameView, Profile};
use profiler_profile_formats::{frame_label, printable};

/// The kind of a box, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A group of stacks: all samples, a process, a thread.
    Group,
    /// Frames of a function.
    Frame(CodeKind),
}

impl Kind {
    /// The kinds of code, in the order of the legend of the HTML page.
    pub(super) const CODE_KINDS: [Self; 7] = [
        Self::Frame(CodeKind::Jit),
        Self::Frame(CodeKind::Precompiled),
        Self::Frame(CodeKind::Native),
        Self::Frame(CodeKind::Inlined),
        Self::Frame(CodeKind::Kernel),
        Self::Frame(CodeKind::Unsymbolized),
        Self::Frame(CodeKind::Wait),
    ];

    /// The name in the legend of the HTML page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Group => "",
            Self::Frame(CodeKind::Kernel) => "kernel",
            Self::Frame(CodeKind::Native) => "native",
            Self::Frame(CodeKind::Precompiled) => "precompiled",
            Self::Frame(CodeKind::Jit) => "JIT",
            Self::Frame(CodeKind::Inlined) => "inlined",
            Self::Frame(CodeKind::Unsymbolized) => "unsymbolized",
            Self::Frame(CodeKind::Wait) => "wait",
        }
    }
}

/// A function or a group. Equal in all profiles that contain it.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// The name, without control characters.
    pub(super) label: String,
    /// The file name of the module, empty outside any module.
    pub(super) module: String,
    pub(super) kind: Kind,
}

impl Function {
    pub(super) fn group(label: String) -> Self {
        Self { label, module: String::new(), kind: Kind::Group }
    }

    fn from_frame(frame: FrameView<'_>) -> Self {
        Self {
            label: frame_label(frame),
            module: printable(frame.module_name()).into_owned(),
            kind: Kind::Frame(frame.code_kind()),
        }
    }

    /// The parts that equality compares: precompiled and JIT code of a method are the same function.
    pub(super) fn identity(&self) -> (&str, &str, Option<Kind>) {
        match self.kind {
            Kind::Frame(CodeKind::Jit | CodeKind::Precompiled) => (&self.label, "", None),
            kind => (&self.label, &self.module, Some(kind)),
        }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Function {}

impl std::hash::Hash for Function {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// The functions of a profile, by number.
#[derive(Debug, Default)]
pub(super) struct Functions {
    all: IndexSet<Function>,
    /// The number of the function of each frame.
    by_frame: Vec<usize>,
}

impl Functions {
    pub(super) fn from_profile(profile: &Profile) -> Self {
        let mut all = IndexSet::new();
        let functions = profile.frame_views().map(Function::from_frame);
        let by_frame = functions.map(|function| all.insert_full(function).0).collect();
        Self { all, by_frame }
    }

    /// Adds a function that is not in the profile, and returns its number.
    pub(super) fn add(&mut self, function: Function) -> usize {
        self.all.insert_full(function).0
    }

    /// The number of the function of the frame at `index` of the profile.
    pub(super) fn number(&self, index: usize) -> usize {
        self.by_frame[index]
    }

    pub(super) fn all(&self) -> &IndexSet<Function> {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use profiler_addresses::ElfAddress;
    use profiler_profile::{Frame, FrameKind, Header, ProfileBuilder, Reason, SymbolSource, Symbolization};

    use super::*;

    fn functions(frames: &[(&str, FrameKind, &str, Symbolization)]) -> Vec<Function> {
        let mut builder = ProfileBuilder::default();
        for (address, (name, kind, module, symbolization)) in (0..).zip(frames) {
            let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
            let (address, symbolization) = (ElfAddress(address), *symbolization);
            builder.frame(Frame { name, kind: *kind, module, address, location: None, symbolization });
        }
        let functions = Functions::from_profile(&builder.finish(Header::default()));
        functions.all().iter().cloned().collect()
    }

    const SYMBOLIZED: Symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);

    #[test]
    fn jit_and_precompiled_code_of_a_method_is_one_function() {
        let both =
            [FrameKind::Precompiled, FrameKind::Jit].map(|kind| ("A!B.C()", kind, "/A.dll", SYMBOLIZED));
        assert_eq!(functions(&both).len(), 1);
    }

    #[test]
    fn native_functions_are_distinguished_by_module_and_not_by_address() {
        let frame = |module| ("main", FrameKind::Native, module, SYMBOLIZED);
        let found = functions(&[frame("/bin/a"), frame("/bin/b"), frame("/bin/a")]);
        assert_eq!(found.iter().map(|function| function.module.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn names_have_no_control_characters() {
        let hostile = "x\u{1b}]0;y\u{7}\u{202e}\u{200f}\u{9b}\n";
        for symbolization in [SYMBOLIZED, Symbolization::Address(Reason::NoSymbols)] {
            let found = functions(&[(hostile, FrameKind::Native, hostile, symbolization)]);
            let text = format!("{}{}", found[0].label, found[0].module);
            assert!(text.chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{200f}'), "{text:?}");
        }
    }
}
