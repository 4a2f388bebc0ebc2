//! The line of the summary for interpreters, whose functions are not in the profile.

use std::collections::BTreeMap;

use profiler_profile::{FrameView, LanguageRuntime, Profile, StackView, SymbolSource, sum};

/// Samples in an interpreter below this share, percent, are not mentioned.
const MIN_PERCENT: u64 = 5;

/// The interpreter that most samples of the default event are in, if the functions that it runs have no frames.
pub(super) fn line(profile: &Profile) -> Option<String> {
    let event = profile.default_event();
    let total = sum::of(profile.samples_of(event).map(|sample| sample.value));
    // Stacks are much fewer than samples.
    let runtimes: Vec<_> = profile.stack_views().map(hidden_interpreter).collect();
    let mut hidden: BTreeMap<LanguageRuntime, u64> = BTreeMap::new();
    for sample in profile.samples_of(event) {
        if let Some(runtime) = runtimes[sample.stack.index()] {
            let value = hidden.entry(runtime).or_default();
            *value = value.saturating_add(sample.value);
        }
    }
    let (runtime, value) = hidden.into_iter().max_by_key(|(_, value)| *value)?;
    let percent = 100.0 * value as f64 / total.max(1) as f64;
    (percent >= MIN_PERCENT as f64).then(|| {
        let remedy = runtime.shown_by().map(|remedy| format!(": {remedy}")).unwrap_or_default();
        let name = runtime.name();
        format!(
            "{percent:.1} % of the samples are in {name}, whose interpreted functions have no frames{remedy}"
        )
    })
}

/// The interpreter in a stack without a frame of a function that it runs.
fn hidden_interpreter(stack: StackView<'_>) -> Option<LanguageRuntime> {
    let is_shown = |source| matches!(source, Ok(SymbolSource::PerfMap | SymbolSource::JitDump));
    if stack.frames().any(|frame| is_shown(frame.source())) {
        return None;
    }
    let modules = stack.frames().filter_map(FrameView::module);
    let mut runtimes = modules.filter_map(|module| LanguageRuntime::of_module(module.path()));
    runtimes.find(|runtime| runtime.is_interpreter())
}

#[cfg(test)]
mod tests {
    use profiler_addresses::ElfAddress;
    use profiler_profile::{Frame, FrameKind, Header, ProfileBuilder, Reason, StackEnd, Symbolization};

    use super::*;

    /// A profile of stacks, each with the paths of its modules and whether the leaf is named by a perf map.
    fn line_of(stacks: &[(&[&str], bool)]) -> Option<String> {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for (modules, has_map) in stacks {
            let mut frames = Vec::new();
            if *has_map {
                let symbolization = Symbolization::Symbol(SymbolSource::PerfMap);
                let name = builder.string("py::run");
                let (kind, address) = (FrameKind::Jit, ElfAddress(1));
                frames.push(builder.frame(Frame {
                    name,
                    kind,
                    module: None,
                    address,
                    location: None,
                    symbolization,
                }));
            }
            for path in *modules {
                let module = Some(builder.module(path, &[]));
                let symbolization = Symbolization::Address(Reason::NoSymbols);
                let name = builder.string("[0x1]");
                let (kind, address) = (FrameKind::Native, ElfAddress(1));
                frames.push(builder.frame(Frame {
                    name,
                    kind,
                    module,
                    address,
                    location: None,
                    symbolization,
                }));
            }
            let stack = builder.stack(frames, StackEnd::Root);
            builder.sample(0, 0, thread, stack, 1);
        }
        line(&builder.finish(Header::default()))
    }

    #[test]
    fn an_interpreter_is_named_with_what_shows_its_functions() {
        let python: (&[&str], bool) = (&["/lib/libc.so.6", "/usr/bin/python3.11"], false);
        let text = line_of(&[python, (&["/lib/libc.so.6"], false)]).unwrap();
        assert!(text.starts_with("50.0 % of the samples are in CPython, whose"), "{text}");
        assert!(text.ends_with("frames: start it with `python3 -X perf` (Python 3.12 and later)"), "{text}");
        let text = line_of(&[(&["/usr/bin/perl"], false)]).unwrap();
        assert!(
            text.contains("100.0 % of the samples are in Perl") && text.ends_with("have no frames"),
            "{text}"
        );
    }

    #[test]
    fn what_has_names_or_is_compiled_is_not_mentioned() {
        assert_eq!(line_of(&[(&["/usr/bin/python3.12"], true)]), None);
        assert_eq!(line_of(&[(&["/usr/lib/libjvm.so"], false), (&["/bin/app"], false)]), None);
        assert_eq!(line_of(&[]), None);
        let mut stacks = vec![(&["/bin/app"][..], false); 99];
        stacks.push((&["/usr/bin/bash"], false));
        assert_eq!(line_of(&stacks), None);
    }
}
