//! Labels of frames, threads, processes and containers in text outputs, with names of the target escaped.
//!
//! A name of a hostile target must not break a line, a stack or a terminal.

use std::borrow::Cow;

use super::OutputOptions;
use profiler_profile::{Frame, FrameKind, KubernetesNames, Process, Profile, StringId, Thread};

/// Escapes a name for folded lines and terminals: `;` becomes `:`, control characters become spaces.
pub(super) fn clean(name: &str) -> Cow<'_, str> {
    if name.contains(';') { Cow::Owned(printable(name).replace(';', ":")) } else { printable(name) }
}

/// The escaped name of a function or process; `[unknown]`, as perf prints it, for an empty one.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("[unknown]") } else { clean(name) }
}

/// Escapes a name for a terminal: characters that change the text around them become spaces.
///
/// ```
/// assert_eq!(profiler_profile_formats::printable("a\u{1b}[31mb"), "a [31mb");
/// ```
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    if name.chars().any(is_unprintable) {
        Cow::Owned(name.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect())
    } else {
        Cow::Borrowed(name)
    }
}

/// Control characters, the two Unicode line separators, the marks that reorder text (property `Bidi_Control`), and the
/// two code points that XML excludes.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// The label of a frame in text outputs: its name, with file and line where they are known, safe for a terminal.
#[must_use]
pub fn frame_label(profile: &Profile, frame: &Frame) -> String {
    let mut label = String::new();
    push_frame(profile, frame, &OutputOptions::default(), &mut label);
    label
}

/// Appends the label of a frame.
pub(super) fn push_frame(profile: &Profile, frame: &Frame, options: &OutputOptions, line: &mut String) {
    line.push_str(&name(profile.string(frame.name)));
    if let Some(location) = frame.location {
        let path = profile.string(location.file);
        let file = path.rsplit('/').next().unwrap_or(path);
        line.push_str(" (");
        line.push_str(&clean(file));
        if location.line != 0 {
            line.push(':');
            line.push_str(&location.line.to_string());
        }
        line.push(')');
    }
    if options.annotate {
        line.push_str(annotation(frame.kind));
    }
}

/// The suffix for the kind of a frame, as `stackcollapse-perf.pl` writes it and flame graphs colour it.
fn annotation(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Kernel => "_[k]",
        // JIT and precompiled code of a method are one frame.
        FrameKind::Jit | FrameKind::Precompiled => "_[j]",
        FrameKind::Inlined => "_[i]",
        _ => "",
    }
}

/// What distinguishes containers: the id, and the names in Kubernetes.
pub(super) type ContainerKey = (Option<StringId>, Option<KubernetesNames>);

/// The label of a container, with as much of its id as container runtimes show, and its names in Kubernetes.
pub(super) fn container(profile: &Profile, (id, names): ContainerKey) -> String {
    const SHOWN_CHARS: usize = 12;
    let Some(id) = id else { return "no container".to_owned() };
    let shown: String = profile.string(id).chars().take(SHOWN_CHARS).collect();
    let names = names.map(|names| format!(" ({})", kubernetes_path(profile, names))).unwrap_or_default();
    clean(&format!("container {shown}{names}")).into_owned()
}

/// Namespace, pod and container, without the last for a sandbox: `shop/web-0/app`.
pub(super) fn kubernetes_path(profile: &Profile, names: KubernetesNames) -> String {
    let KubernetesNames { namespace, pod, container } = names;
    let parts = [Some(namespace), Some(pod), container].into_iter().flatten();
    parts.map(|name| profile.string(name)).collect::<Vec<_>>().join("/")
}

/// The names of a process's container in Kubernetes, each with its attribute of OpenTelemetry's semantic conventions for
/// resources.
#[cfg(any(feature = "events-jsonl", feature = "pprof"))]
pub(super) fn kubernetes_attributes(
    process: &Process,
) -> impl Iterator<Item = (&'static str, StringId)> + use<> {
    let names = process.kubernetes;
    let attributes = [
        ("k8s.namespace.name", names.map(|names| names.namespace)),
        ("k8s.pod.name", names.map(|names| names.pod)),
        ("k8s.container.name", names.and_then(|names| names.container)),
    ];
    attributes.into_iter().filter_map(|(attribute, name)| Some((attribute, name?)))
}

/// The label of a process.
pub(super) fn process(profile: &Profile, process: &Process) -> String {
    format!("process {} ({})", process.pid, clean(profile.string(process.comm)))
}

/// The label of a thread.
pub(super) fn thread(profile: &Profile, thread: &Thread) -> String {
    format!("thread {} ({})", thread.tid, clean(profile.string(thread.comm)))
}

/// A function name with its module, unless the name contains the module.
pub(super) fn with_module(name: &str, module: &str) -> String {
    let stem = module.trim_end_matches(".dll");
    if stem.is_empty() || name.starts_with('[') || name.starts_with(&format!("{stem}!")) {
        return name.to_owned();
    }
    format!("{name} ({})", clean(module.trim_matches(['[', ']'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_lines_stacks_or_terminals() {
        assert_eq!(clean("a;b\nc\r\u{1b}[31md\u{7f}\u{9b}"), "a:b c  [31md  ");
        assert_eq!(clean("x\u{202e}y\u{2028}z\u{200f}"), "x y z ");
        assert_eq!(printable("x;\u{202e}y\u{200f}\u{61c}z"), "x; y  z");
        assert_eq!((name(""), name("f;")), (Cow::Borrowed("[unknown]"), Cow::Borrowed("f:")));
        assert!(matches!(clean("Foo::bar<T> [x] \u{e9}"), Cow::Borrowed(_)));
    }
}
