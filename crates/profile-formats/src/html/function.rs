//! The functions of the page: frames of the same code, whatever their addresses are.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::{side::Side, text::Texts};
use profiler_profile::{CodeKind, Frame, FrameId, FrameKind, Profile, Symbolization, UnsymbolizedFrames};

/// What makes two frames the same function.
#[derive(PartialEq, Eq, Hash)]
struct Identity<'a> {
    name: &'a str,
    place: Option<Place<'a>>,
    code: Code<'a>,
}

/// A place in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place<'a> {
    file: &'a str,
    line: u32,
}

/// A method is the same one, whether its code was compiled before or at run time; otherwise the file counts.
#[derive(PartialEq, Eq, Hash)]
enum Code<'a> {
    Managed,
    Of(Option<&'a str>, FrameKind),
    InFile(&'a str),
}

/// Which frames are those of one function.
#[derive(Clone, Copy)]
pub(super) enum Sameness {
    /// By name, file, kind and place in the source.
    InOneRun,
    /// By name and the file's name: another build may lie elsewhere, have other lines, and inline other functions.
    AcrossBuilds,
}

/// Numbers the functions of frames as they come.
pub(super) struct Functions<'a> {
    sameness: Sameness,
    identities: IndexSet<Identity<'a>>,
    frames: IndexMap<(usize, FrameId), InFunction<'a>>,
}

/// A frame's function, and the samples that have the frame.
struct InFunction<'a> {
    profile: &'a Profile,
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

impl<'a> Functions<'a> {
    pub(super) fn by(sameness: Sameness) -> Self {
        Self { sameness, identities: IndexSet::new(), frames: IndexMap::new() }
    }

    /// The number of the function that a frame of so many samples is in.
    pub(super) fn number(&mut self, side: Side<'a>, id: FrameId, samples: u64) -> u32 {
        let Self { sameness, identities, frames } = self;
        let Side { number, profile } = side;
        let frame = frames.entry((number, id)).or_insert_with(|| {
            let identity = Identity::of(profile, profile.frame(id), *sameness);
            InFunction { profile, function: identities.insert_full(identity).0, samples: 0 }
        });
        frame.samples = frame.samples.saturating_add(samples);
        u32::try_from(frame.function).unwrap_or(u32::MAX)
    }

    pub(super) fn columns(&self, texts: &mut Texts<'a>) -> Columns {
        let mut columns = Columns::default();
        for (identity, known) in self.identities.iter().zip(self.known()) {
            let (file, line) = identity.place.map_or(("", 0), |place| (place.file, place.line));
            columns.name.push(texts.number(identity.name));
            columns.kind.push(known.kind());
            columns.module.push(texts.number(known.module.unwrap_or_default()));
            columns.file.push(texts.number(file));
            columns.line.push(line);
            columns.naming.push(texts.number(known.namings()));
        }
        columns
    }

    /// What the frames of each function say of it.
    fn known(&self) -> Vec<Known<'a>> {
        let mut known: Vec<Known<'a>> = self.identities.iter().map(|_| Known::default()).collect();
        for ((_, id), InFunction { profile, function, samples }) in &self.frames {
            if let Some(known) = known.get_mut(*function) {
                known.learn(profile, profile.frame(*id), *samples);
            }
        }
        known
    }
}

impl<'a> Identity<'a> {
    fn of(profile: &'a Profile, frame: &Frame, sameness: Sameness) -> Self {
        let place = frame.location.map(|at| Place { file: profile.string(at.file), line: at.line });
        let path = || frame.module.map(|module| profile.string(profile.module(module).path));
        let code = match (frame.kind, sameness) {
            (FrameKind::Precompiled | FrameKind::Jit, _) => Code::Managed,
            (kind, Sameness::InOneRun) => Code::Of(path(), kind),
            (_, Sameness::AcrossBuilds) => Code::InFile(profile.module_name(frame.module)),
        };
        let place = place.filter(|_| matches!(sameness, Sameness::InOneRun));
        Self { name: profile.string(frame.name), place, code }
    }
}

/// What is known of a function.
#[derive(Default)]
struct Known<'a> {
    module: Option<&'a str>,
    samples: BTreeMap<CodeKind, u64>,
    namings: IndexSet<Symbolization>,
}

impl<'a> Known<'a> {
    fn learn(&mut self, profile: &'a Profile, frame: &Frame, samples: u64) {
        self.module = self.module.or(frame.module.map(|module| profile.string(profile.module(module).path)));
        let of_kind = self.samples.entry(frame.code_kind()).or_default();
        *of_kind = of_kind.saturating_add(samples);
        self.namings.insert(frame.naming);
    }

    /// The number of the kind that most of the samples are of.
    fn kind(&self) -> usize {
        let most = self.samples.iter().max_by_key(|(_, samples)| **samples).map(|(kind, _)| *kind);
        CodeKind::ALL.iter().position(|kind| Some(*kind) == most).unwrap_or_default()
    }

    fn namings(&self) -> String {
        let words = self.namings.iter().map(|naming| match naming {
            Symbolization::Symbol(source) => format!("named by {source}"),
            Symbolization::Address(reason) => {
                let module = self.module.unwrap_or_default().to_owned();
                let remedy = UnsymbolizedFrames { module, reason: *reason }.remedy();
                let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
                format!("no name: {reason}{remedy}")
            }
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{Header, ProfileBuilder, Reason, SymbolSource};

    fn frame(
        name: &str,
        kind: FrameKind,
        module: &str,
        naming: Symbolization,
        builder: &mut ProfileBuilder,
    ) -> FrameId {
        let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
        let address = ElfAddress(0);
        builder.frame(Frame { name, kind, module, address, location: None, naming })
    }

    /// The columns of frames, each with its number of samples, and the strings they are of.
    fn columns(builder: ProfileBuilder, frames: &[(FrameId, u64)]) -> (Vec<u32>, Value, Value) {
        let profile = &builder.finish(Header::default());
        let mut functions = Functions::by(Sameness::InOneRun);
        let mut number = |(id, samples)| functions.number(Side { number: 0, profile }, id, samples);
        let numbers = frames.iter().copied().map(&mut number).collect();
        let mut texts = Texts::new();
        let columns = functions.columns(&mut texts);
        (numbers, json!(columns), json!(texts))
    }

    #[test]
    fn a_method_is_one_function_of_the_kind_that_most_samples_are_of() {
        let mut builder = ProfileBuilder::default();
        let sources = [SymbolSource::ReadyToRun, SymbolSource::RuntimeEvents].map(Symbolization::Symbol);
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
        let naming = Symbolization::Symbol(SymbolSource::SymbolTable);
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
        let naming = Symbolization::Address(Reason::NoSymbols);
        let unnamed = frame("[a+0x1]", FrameKind::Native, "/a", naming, &mut builder);
        let (_, columns, texts) = columns(builder, &[(unnamed, u64::MAX), (unnamed, 1)]);
        assert_eq!(columns["kind"], json!([5]));
        let remedy =
            UnsymbolizedFrames { module: "/a".to_owned(), reason: Reason::NoSymbols }.remedy().unwrap();
        assert_eq!(texts[3], json!(format!("no name: no symbols: {remedy}")));
    }

    #[test]
    fn across_builds_a_function_is_the_same_by_its_name_and_its_files_name() {
        let naming = Symbolization::Symbol(SymbolSource::SymbolTable);
        let mut functions = Functions::by(Sameness::AcrossBuilds);
        let sides = ["/old", "/new"].map(|folder| {
            let mut builder = ProfileBuilder::default();
            // What shifts the numbers of names in one of them.
            builder.string(folder);
            let module = format!("{folder}/a");
            let called = frame("f", FrameKind::Native, &module, naming, &mut builder);
            let inlined = frame("f", FrameKind::Inlined, &module, naming, &mut builder);
            let other = frame("f", FrameKind::Native, "/b", naming, &mut builder);
            let method = frame("f", FrameKind::Jit, &module, naming, &mut builder);
            (builder.finish(Header::default()), [called, inlined, other, method])
        });
        for (number, (profile, frames)) in sides.iter().enumerate() {
            let numbers = frames.map(|id| functions.number(Side { number, profile }, id, 1));
            assert_eq!(numbers, [0, 0, 1, 2]);
        }
    }
}
