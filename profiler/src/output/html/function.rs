//! The functions of the page: frames of the same code, whatever their addresses are.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::text::Texts;
use crate::profile::{Frame, FrameId, FrameKind, Naming, Profile, SourceLocation, StringId};

/// What a function's box is coloured by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Kernel,
    Native,
    Precompiled,
    Jit,
    Inlined,
    Unnamed,
}

impl Kind {
    /// By number, as the column of kinds has them.
    pub(super) const ALL: [Self; 6] =
        [Self::Kernel, Self::Native, Self::Precompiled, Self::Jit, Self::Inlined, Self::Unnamed];

    fn of(frame: &Frame) -> Self {
        match (frame.naming, frame.kind) {
            (Naming::Address(_), _) => Self::Unnamed,
            (_, FrameKind::Kernel) => Self::Kernel,
            (_, FrameKind::Native) => Self::Native,
            (_, FrameKind::Precompiled) => Self::Precompiled,
            (_, FrameKind::Jit) => Self::Jit,
            (_, FrameKind::Inlined) => Self::Inlined,
        }
    }
}

/// What makes two frames the same function.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    name: StringId,
    location: Option<SourceLocation>,
    code: Code,
}

/// A method is the same one, whether its code was compiled before or at run time; otherwise the file counts.
#[derive(PartialEq, Eq, Hash)]
enum Code {
    Managed,
    Of(Option<StringId>, FrameKind),
}

/// Numbers the functions of frames as they come.
#[derive(Default)]
pub(super) struct Functions {
    identities: IndexSet<Identity>,
    frames: IndexMap<FrameId, InFunction>,
}

/// A frame's function, and the samples that have the frame.
struct InFunction {
    function: usize,
    samples: u64,
}

/// What the page knows of each function.
#[derive(Default, Serialize)]
pub(super) struct Columns {
    name: Vec<usize>,
    kind: Vec<usize>,
    module: Vec<usize>,
    file: Vec<usize>,
    line: Vec<u32>,
    naming: Vec<usize>,
}

impl Functions {
    /// The number of the function that a frame of so many samples is in.
    pub(super) fn number(&mut self, profile: &Profile, id: FrameId, samples: u64) -> u32 {
        let identities = &mut self.identities;
        let frame = self.frames.entry(id).or_insert_with(|| {
            let identity = Identity::of(profile, profile.frame(id));
            InFunction { function: identities.insert_full(identity).0, samples: 0 }
        });
        frame.samples = frame.samples.saturating_add(samples);
        u32::try_from(frame.function).unwrap_or(u32::MAX)
    }

    pub(super) fn columns<'a>(&self, profile: &'a Profile, texts: &mut Texts<'a>) -> Columns {
        let mut columns = Columns::default();
        for (identity, known) in self.identities.iter().zip(self.known(profile)) {
            let (file, line) = identity.location.map_or(("", 0), |at| (profile.string(at.file), at.line));
            columns.name.push(texts.number(profile.string(identity.name)));
            columns.kind.push(known.kind());
            columns.module.push(texts.number(known.module.map_or("", |path| profile.string(path))));
            columns.file.push(texts.number(file));
            columns.line.push(line);
            columns.naming.push(texts.number(known.namings()));
        }
        columns
    }

    /// What the frames of each function say of it.
    fn known(&self, profile: &Profile) -> Vec<Known> {
        let mut known: Vec<Known> = self.identities.iter().map(|_| Known::default()).collect();
        for (id, InFunction { function, samples }) in &self.frames {
            if let Some(known) = known.get_mut(*function) {
                known.learn(profile, profile.frame(*id), *samples);
            }
        }
        known
    }
}

impl Identity {
    fn of(profile: &Profile, frame: &Frame) -> Self {
        let code = match frame.kind {
            FrameKind::Precompiled | FrameKind::Jit => Code::Managed,
            kind => Code::Of(frame.module.map(|module| profile.module(module).path), kind),
        };
        Self { name: frame.name, location: frame.location, code }
    }
}

/// What is known of a function.
#[derive(Default)]
struct Known {
    module: Option<StringId>,
    samples: BTreeMap<Kind, u64>,
    namings: IndexSet<Naming>,
}

impl Known {
    fn learn(&mut self, profile: &Profile, frame: &Frame, samples: u64) {
        self.module = self.module.or(frame.module.map(|module| profile.module(module).path));
        let of_kind = self.samples.entry(Kind::of(frame)).or_default();
        *of_kind = of_kind.saturating_add(samples);
        self.namings.insert(frame.naming);
    }

    /// The number of the kind that most of the samples are of.
    fn kind(&self) -> usize {
        let most = self.samples.iter().max_by_key(|(_, samples)| **samples).map(|(kind, _)| *kind);
        Kind::ALL.iter().position(|kind| Some(*kind) == most).unwrap_or_default()
    }

    fn namings(&self) -> String {
        let words = self.namings.iter().map(|naming| match naming {
            Naming::Symbol(source) => format!("named by {source}"),
            Naming::Address(reason) => format!("no name: {reason}"),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        address::ElfAddress,
        profile::{Header, ProfileBuilder, Reason, SymbolSource},
    };

    fn frame(
        name: &str,
        kind: FrameKind,
        module: &str,
        naming: Naming,
        builder: &mut ProfileBuilder,
    ) -> FrameId {
        let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
        let address = ElfAddress(0);
        builder.frame(Frame { name, kind, module, address, location: None, naming })
    }

    /// The columns of frames, each with its number of samples, and the strings they are of.
    fn columns(builder: ProfileBuilder, frames: &[(FrameId, u64)]) -> (Vec<u32>, Value, Value) {
        let profile = builder.finish(Header::default());
        let mut functions = Functions::default();
        let numbers = frames.iter().map(|(id, samples)| functions.number(&profile, *id, *samples)).collect();
        let mut texts = Texts::new();
        let columns = functions.columns(&profile, &mut texts);
        (numbers, json!(columns), json!(texts))
    }

    #[test]
    fn a_method_is_one_function_of_the_kind_that_most_samples_are_of() {
        let mut builder = ProfileBuilder::default();
        let sources = [SymbolSource::ReadyToRun, SymbolSource::RuntimeEvents].map(Naming::Symbol);
        let early = frame("A.B()", FrameKind::Precompiled, "/a.dll", sources[0], &mut builder);
        let late = frame("A.B()", FrameKind::Jit, "/a.dll", sources[1], &mut builder);
        let (numbers, columns, texts) = columns(builder, &[(early, 2), (late, 3), (early, 1), (late, 4)]);
        assert_eq!(numbers, [0, 0, 0, 0]);
        assert_eq!(columns["kind"], json!([3]), "{columns}");
        assert_eq!(texts, json!(["", "A.B()", "/a.dll", "named by ReadyToRun, named by runtime events"]));
    }

    #[test]
    fn native_functions_of_one_name_in_two_files_are_two() {
        let mut builder = ProfileBuilder::default();
        let naming = Naming::Symbol(SymbolSource::SymbolTable);
        let one = frame("main", FrameKind::Native, "/a", naming, &mut builder);
        let other = frame("main", FrameKind::Native, "/b", naming, &mut builder);
        let inlined = frame("main", FrameKind::Inlined, "/b", naming, &mut builder);
        let (numbers, columns, _) = columns(builder, &[(one, 1), (other, 1), (inlined, 1)]);
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(columns["kind"], json!([1, 1, 4]));
    }

    #[test]
    fn what_has_no_name_is_a_kind_of_its_own_and_says_why() {
        let mut builder = ProfileBuilder::default();
        let naming = Naming::Address(Reason::NoSymbols);
        let unnamed = frame("[a+0x1]", FrameKind::Native, "/a", naming, &mut builder);
        let (_, columns, texts) = columns(builder, &[(unnamed, u64::MAX), (unnamed, 1)]);
        assert_eq!(columns["kind"], json!([5]));
        assert_eq!(texts[3], json!("no name: no symbols"));
    }
}
