//! The functions of a profile: frames of the same code, whatever their addresses are.

use indexmap::IndexSet;

use profiler_profile::{CodeKind, Frame, Profile};
use profiler_profile_formats::{frame_label, printable};

/// What a box is coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// No code: all samples, a process, a thread.
    Group,
    Code(CodeKind),
}

impl Kind {
    /// Those of code, in the order of the page's legend.
    pub(super) const OF_CODE: [Self; 6] = [
        Self::Code(CodeKind::Jit),
        Self::Code(CodeKind::Precompiled),
        Self::Code(CodeKind::Native),
        Self::Code(CodeKind::Inlined),
        Self::Code(CodeKind::Kernel),
        Self::Code(CodeKind::Unsymbolized),
    ];

    /// In the page's words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Group => "",
            Self::Code(CodeKind::Kernel) => "kernel",
            Self::Code(CodeKind::Native) => "native",
            Self::Code(CodeKind::Precompiled) => "precompiled",
            Self::Code(CodeKind::Jit) => "JIT",
            Self::Code(CodeKind::Inlined) => "inlined",
            Self::Code(CodeKind::Unsymbolized) => "no name",
        }
    }
}

/// A function, or what stands above the outermost one. The same in every profile that has it.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// What it is called: fit for a terminal.
    pub(super) label: String,
    /// The file it is from, empty where there is none.
    pub(super) module: String,
    pub(super) kind: Kind,
}

impl Function {
    pub(super) fn group(label: String) -> Self {
        Self { label, module: String::new(), kind: Kind::Group }
    }

    fn of(profile: &Profile, frame: &Frame) -> Self {
        let path = frame.module.map_or("", |module| profile.string(profile.module(module).path));
        let file = path.rsplit('/').next().unwrap_or(path);
        Self {
            label: frame_label(profile, frame),
            module: printable(file).into_owned(),
            kind: Kind::Code(frame.code_kind()),
        }
    }

    /// What makes two of them the same: a method is, whether its code was compiled before or at run time.
    pub(super) fn identity(&self) -> (&str, &str, Option<Kind>) {
        match self.kind {
            Kind::Code(CodeKind::Jit | CodeKind::Precompiled) => (&self.label, "", None),
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
    of_frames: Vec<usize>,
}

impl Functions {
    pub(super) fn of(profile: &Profile) -> Self {
        let mut all = IndexSet::new();
        let of_frames =
            profile.frames().map(|frame| all.insert_full(Function::of(profile, frame)).0).collect();
        Self { all, of_frames }
    }

    /// The number of what is no function of the profile.
    pub(super) fn add(&mut self, function: Function) -> usize {
        self.all.insert_full(function).0
    }

    /// The number of the function that the frame at `index` of the profile is in.
    pub(super) fn number(&self, index: usize) -> usize {
        self.of_frames[index]
    }

    pub(super) fn all(&self) -> &IndexSet<Function> {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{FrameKind, Header, ProfileBuilder, Reason, SymbolSource, Symbolization};

    fn functions(frames: &[(&str, FrameKind, &str, Symbolization)]) -> Vec<Function> {
        let mut builder = ProfileBuilder::default();
        for (address, (name, kind, module, naming)) in (0..).zip(frames) {
            let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
            let (address, naming) = (ElfAddress(address), *naming);
            builder.frame(Frame { name, kind: *kind, module, address, location: None, naming });
        }
        let functions = Functions::of(&builder.finish(Header::default()));
        functions.all().iter().cloned().collect()
    }

    const NAMED: Symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);

    #[test]
    fn a_method_is_one_function_however_its_code_was_compiled() {
        let both = [FrameKind::Precompiled, FrameKind::Jit].map(|kind| ("A!B.C()", kind, "/A.dll", NAMED));
        assert_eq!(functions(&both).len(), 1);
    }

    #[test]
    fn native_functions_of_one_name_in_two_files_are_two_and_addresses_do_not_matter() {
        let frame = |module| ("main", FrameKind::Native, module, NAMED);
        let found = functions(&[frame("/bin/a"), frame("/bin/b"), frame("/bin/a")]);
        assert_eq!(found.iter().map(|function| function.module.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn no_name_harms_a_terminal() {
        let hostile = "x\u{1b}]0;y\u{7}\u{202e}\u{200f}\u{9b}\n";
        for naming in [NAMED, Symbolization::Address(Reason::NoSymbols)] {
            let found = functions(&[(hostile, FrameKind::Native, hostile, naming)]);
            let text = format!("{}{}", found[0].label, found[0].module);
            assert!(text.chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{200f}'), "{text:?}");
        }
    }
}
