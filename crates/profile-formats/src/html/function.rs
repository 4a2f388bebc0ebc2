//! The functions of the page: frames merged over addresses.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::{side::Side, text::Texts};
use profiler_findings::WaitCause;
use profiler_profile::{
    CodeKind, FrameId, FrameKind, FrameView, LocationView, ModuleView, Reason, SymbolSource,
    UnsymbolizedFrames,
};

/// The identity of a function.
#[derive(PartialEq, Eq, Hash)]
struct Identity<'a> {
    name: &'a str,
    location: Option<LocationView<'a>>,
    module: ModuleIdentity<'a>,
}

/// The module as a part of the identity: that of managed code is left out, since JIT code has none.
#[derive(PartialEq, Eq, Hash)]
enum ModuleIdentity<'a> {
    Managed,
    PathAndKind(Option<&'a str>, FrameKind),
    FileName(&'a str),
}

/// Which fields identify a function.
#[derive(Clone, Copy)]
pub(super) enum Sameness {
    /// Name, module, kind and source line.
    InOneRun,
    /// Name and file name of the module: two builds differ in paths, lines and inlining.
    AcrossBuilds,
}

/// Assigns indices to functions in order of appearance.
pub(super) struct Functions<'a> {
    sameness: Sameness,
    identities: IndexSet<Identity<'a>>,
    frames: IndexMap<(usize, FrameId), InFunction<'a>>,
}

/// The function of a frame, and the samples with the frame.
struct InFunction<'a> {
    frame: FrameView<'a>,
    function: usize,
    samples: u64,
}

/// The columns of all functions.
#[derive(Default, Serialize)]
pub(super) struct Columns {
    name: Vec<usize>,
    kind: Vec<usize>,
    module: Vec<usize>,
    file: Vec<usize>,
    line: Vec<u32>,
    symbolization: Vec<usize>,
    /// The indices of labels: the separator between a waiting stack and that of its waker, and names of wakers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<usize>,
    /// The indices of causes of waits, each with its group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<(usize, &'static str)>,
}

impl<'a> Functions<'a> {
    pub(super) fn by(sameness: Sameness) -> Self {
        Self { sameness, identities: IndexSet::new(), frames: IndexMap::new() }
    }

    /// The index of the function of a frame with this number of samples.
    pub(super) fn number(&mut self, side: Side<'a>, id: FrameId, samples: u64) -> u32 {
        let Self { sameness, identities, frames } = self;
        let Side { number, profile } = side;
        let known = frames.entry((number, id)).or_insert_with(|| {
            let frame = profile.frame_view(id);
            let (function, _) = identities.insert_full(Identity::of(frame, *sameness));
            InFunction { frame, function, samples: 0 }
        });
        known.samples = known.samples.saturating_add(samples);
        u32::try_from(known.function).unwrap_or(u32::MAX)
    }

    pub(super) fn columns(&self, texts: &mut Texts<'a>) -> Columns {
        let mut columns = Columns::default();
        for (index, (identity, known)) in self.identities.iter().zip(self.details()).enumerate() {
            let (file, line) = identity.location.map_or(("", 0), |location| (location.file, location.line));
            columns.name.push(texts.number(identity.name));
            columns.kind.push(known.kind());
            columns.module.push(texts.number(known.module.unwrap_or_default()));
            columns.file.push(texts.number(file));
            columns.line.push(line);
            columns.symbolization.push(texts.number(known.symbolizations()));
            if known.is_label {
                columns.labels.push(index);
            }
            if known.is_wait {
                let cause = WaitCause::of_frame_name(identity.name).unwrap_or(WaitCause::Other);
                columns.waits.push((index, cause.group().name()));
            }
        }
        columns
    }

    /// The details of each function from its frames.
    fn details(&self) -> Vec<Details<'a>> {
        let mut known: Vec<Details<'a>> = self.identities.iter().map(|_| Details::default()).collect();
        for InFunction { frame, function, samples } in self.frames.values() {
            if let Some(known) = known.get_mut(*function) {
                known.add_frame(*frame, *samples);
            }
        }
        known
    }
}

impl<'a> Identity<'a> {
    fn of(frame: FrameView<'a>, sameness: Sameness) -> Self {
        let path = || frame.module().map(ModuleView::path);
        let module = match (frame.kind(), sameness) {
            (FrameKind::Precompiled | FrameKind::Jit, _) => ModuleIdentity::Managed,
            (kind, Sameness::InOneRun) => ModuleIdentity::PathAndKind(path(), kind),
            (_, Sameness::AcrossBuilds) => ModuleIdentity::FileName(frame.module_name()),
        };
        let location = frame.location().filter(|_| matches!(sameness, Sameness::InOneRun));
        Self { name: frame.name(), location, module }
    }
}

/// The details of a function.
#[derive(Default)]
struct Details<'a> {
    module: Option<&'a str>,
    samples: BTreeMap<CodeKind, u64>,
    /// The sources of its symbols, and the reasons where it has none.
    sources: IndexSet<Result<SymbolSource, Reason>>,
    is_label: bool,
    is_wait: bool,
}

impl<'a> Details<'a> {
    fn add_frame(&mut self, frame: FrameView<'a>, samples: u64) {
        self.module = self.module.or(frame.module().map(ModuleView::path));
        let kind_samples = self.samples.entry(frame.code_kind()).or_default();
        *kind_samples = kind_samples.saturating_add(samples);
        if !matches!(frame.kind(), FrameKind::Label | FrameKind::Wait) {
            self.sources.insert(frame.source());
        }
        self.is_label |= frame.kind() == FrameKind::Label;
        self.is_wait |= frame.kind() == FrameKind::Wait;
    }

    /// The index of the kind with most samples.
    fn kind(&self) -> usize {
        let most = self.samples.iter().max_by_key(|(_, samples)| **samples).map(|(kind, _)| *kind);
        CodeKind::ALL.iter().position(|kind| Some(*kind) == most).unwrap_or_default()
    }

    fn symbolizations(&self) -> String {
        let words = self.sources.iter().map(|source| match source {
            Ok(source) => format!("symbolized by {source}"),
            Err(reason) => {
                let module = self.module.unwrap_or_default().to_owned();
                let remedy = UnsymbolizedFrames { module, reason: *reason }.remedy();
                let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
                format!("unsymbolized: {reason}{remedy}")
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
    use profiler_profile::{Frame, Header, ProfileBuilder, Symbolization};

    fn frame(
        name: &str,
        kind: FrameKind,
        module: &str,
        symbolization: Symbolization,
        builder: &mut ProfileBuilder,
    ) -> FrameId {
        let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
        let address = ElfAddress(0);
        builder.frame(Frame { name, kind, module, address, location: None, symbolization })
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
    fn a_method_is_one_function_with_the_most_frequent_kind() {
        let mut builder = ProfileBuilder::default();
        let sources = [SymbolSource::ReadyToRun, SymbolSource::RuntimeEvents].map(Symbolization::Symbol);
        let early = frame("A.B()", FrameKind::Precompiled, "/a.dll", sources[0], &mut builder);
        let late = frame("A.B()", FrameKind::Jit, "/a.dll", sources[1], &mut builder);
        let (numbers, columns, texts) = columns(builder, &[(early, 2), (late, 3), (early, 1), (late, 4)]);
        assert_eq!(numbers, [0, 0, 0, 0]);
        assert_eq!(columns["kind"], json!([3]), "{columns}");
        assert_eq!(
            texts,
            json!(["", "A.B()", "/a.dll", "symbolized by ReadyToRun, symbolized by runtime events"])
        );
    }

    #[test]
    fn native_functions_of_two_modules_are_two() {
        let mut builder = ProfileBuilder::default();
        let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
        let one = frame("main", FrameKind::Native, "/a", symbolization, &mut builder);
        let other = frame("main", FrameKind::Native, "/b", symbolization, &mut builder);
        let inlined = frame("main", FrameKind::Inlined, "/b", symbolization, &mut builder);
        let (numbers, columns, _) = columns(builder, &[(one, 1), (other, 1), (inlined, 1)]);
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(columns["kind"], json!([1, 1, 4]));
    }

    #[test]
    fn labels_are_listed() {
        let mut builder = ProfileBuilder::default();
        let symbolization = Symbolization::Symbol(SymbolSource::Kallsyms);
        let kernel = frame("schedule", FrameKind::Kernel, "[kernel]", symbolization, &mut builder);
        let separator = frame("--", FrameKind::Label, "", symbolization, &mut builder);
        let (_, columns, _) = columns(builder, &[(kernel, 1), (separator, 1)]);
        assert_eq!(columns["labels"], json!([1]));
    }

    #[test]
    fn causes_of_waits_have_their_groups() {
        let mut builder = ProfileBuilder::default();
        let symbolization = Symbolization::Symbol(SymbolSource::Kallsyms);
        let names = ["schedule", "[lock]", "[run queue]"];
        let kinds = [FrameKind::Kernel, FrameKind::Wait, FrameKind::Wait];
        let frames = names.iter().zip(kinds).map(|(name, kind)| {
            let name = builder.string(name);
            let address = ElfAddress(0);
            (builder.frame(Frame { name, kind, module: None, address, location: None, symbolization }), 1)
        });
        let frames: Vec<_> = frames.collect();
        let (_, columns, _) = columns(builder, &frames);
        assert_eq!(columns["waits"], json!([[1, "lock"], [2, "cpu"]]));
        assert_eq!(columns["kind"], json!([0, 6, 6]));
    }

    #[test]
    fn unsymbolized_functions_have_their_own_kind_and_reason() {
        let mut builder = ProfileBuilder::default();
        let symbolization = Symbolization::Address(Reason::NoSymbols);
        let unsymbolized = frame("[a+0x1]", FrameKind::Native, "/a", symbolization, &mut builder);
        let (_, columns, texts) = columns(builder, &[(unsymbolized, u64::MAX), (unsymbolized, 1)]);
        assert_eq!(columns["kind"], json!([5]));
        let remedy =
            UnsymbolizedFrames { module: "/a".to_owned(), reason: Reason::NoSymbols }.remedy().unwrap();
        assert_eq!(texts[3], json!(format!("unsymbolized: no symbols: {remedy}")));
    }

    #[test]
    fn functions_of_two_builds_match_by_name_and_file_name() {
        let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
        let mut functions = Functions::by(Sameness::AcrossBuilds);
        let sides = ["/old", "/new"].map(|folder| {
            let mut builder = ProfileBuilder::default();
            // Shifts the string ids of one profile.
            builder.string(folder);
            let module = format!("{folder}/a");
            let called = frame("f", FrameKind::Native, &module, symbolization, &mut builder);
            let inlined = frame("f", FrameKind::Inlined, &module, symbolization, &mut builder);
            let other = frame("f", FrameKind::Native, "/b", symbolization, &mut builder);
            let method = frame("f", FrameKind::Jit, &module, symbolization, &mut builder);
            (builder.finish(Header::default()), [called, inlined, other, method])
        });
        for (number, (profile, frames)) in sides.iter().enumerate() {
            let numbers = frames.map(|id| functions.number(Side { number, profile }, id, 1));
            assert_eq!(numbers, [0, 0, 1, 2]);
        }
    }
}
