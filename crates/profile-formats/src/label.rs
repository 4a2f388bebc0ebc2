//! Labels of frames, threads, processes and containers in text outputs, with names of the target escaped.
//!
//! A name of a hostile target must not break a line, a stack or a terminal.

use std::borrow::Cow;

use super::OutputOptions;
use profiler_profile::{
    FrameKind, FrameView, KubernetesNames, LocationView, Process, ProcessView, Profile, StringId, ThreadView,
};

/// A line of text for a terminal that can contain names: `;` becomes `:`, control characters become spaces. Different lines
/// can become equal; a name that identifies something goes through [`name`] or [`escaped`].
pub(super) fn clean(line: &str) -> Cow<'_, str> {
    if line.contains(';') { Cow::Owned(printable(line).replace(';', ":")) } else { printable(line) }
}

/// The name of a function or process in a format of lines: [`escaped`], and so are `;`, which separates the frames of folded
/// stacks, and spaces at the ends, which readers of lines remove. `[unknown]`, as perf prints it, for an empty one.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("[unknown]");
    }
    let inner = name.trim_matches(' ');
    if inner.len() == name.len() && !name.contains(';') {
        return escaped(name);
    }
    let start = name.len() - name.trim_start_matches(' ').len();
    let mut text = String::with_capacity(name.len() + 16);
    for (at, c) in name.char_indices() {
        let is_edge = at < start || at >= start + inner.len();
        push_escaped(&mut text, name, at, c, c == ';' || is_edge);
    }
    Cow::Owned(text)
}

/// Escapes a name so that it changes no text around it and different names stay different: each character that a reader does
/// not see, or that changes or breaks the text around it, becomes `\u{...}` with its code point. A backslash of the name in
/// front of `u{` is escaped as well, so that nothing else looks like an escape.
///
/// ```
/// use profiler_profile_formats::escaped;
/// assert_eq!(escaped("a\u{1b}[31mb"), "a\\u{1b}[31mb");
/// assert_eq!(escaped("App\\Controller::run"), "App\\Controller::run");
/// ```
#[must_use]
pub fn escaped(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_hidden) && !name.contains("\\u{") {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 16);
    name.char_indices().for_each(|(at, c)| push_escaped(&mut text, name, at, c, false));
    Cow::Owned(text)
}

/// Appends the character at `at` of a name, escaped if it must be.
fn push_escaped(text: &mut String, name: &str, at: usize, c: char, is_separator: bool) {
    if is_separator || is_hidden(c) || name[at..].starts_with("\\u{") {
        text.push_str(&code_point(c));
    } else {
        text.push(c);
    }
}

/// The escape of a character: `\u{1b}`.
pub(super) fn code_point(c: char) -> String {
    format!("\\u{{{:x}}}", u32::from(c))
}

/// Escapes a message for a terminal: characters that change the text around them become spaces.
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

/// Unprintable characters, spaces but the usual one, and characters without a glyph (Unicode property
/// `Default_Ignorable_Code_Point`, those below U+10000, and tags).
fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    is_unprintable(c)
        || c.is_whitespace()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'
                ..='\u{180f}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
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
pub fn frame_label(frame: FrameView<'_>) -> String {
    let mut label = String::new();
    push_frame(frame, &OutputOptions::default(), &mut label);
    label
}

/// Appends the label of a frame.
pub(super) fn push_frame(frame: FrameView<'_>, options: &OutputOptions, text: &mut String) {
    text.push_str(&name(frame.name()));
    if let Some(LocationView { file: path, line }) = frame.location() {
        let file = path.rsplit('/').next().unwrap_or(path);
        text.push_str(" (");
        text.push_str(&clean(file));
        if line != 0 {
            text.push(':');
            text.push_str(&line.to_string());
        }
        text.push(')');
    }
    if options.annotate {
        text.push_str(annotation(frame.kind()));
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
pub(super) fn process(process: ProcessView<'_>) -> String {
    format!("process {} ({})", process.pid(), clean(process.name()))
}

/// The label of a thread.
pub(super) fn thread(thread: ThreadView<'_>) -> String {
    format!("thread {} ({})", thread.tid(), clean(thread.name()))
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
    fn lines_cannot_break_lines_or_terminals() {
        assert_eq!(clean("a;b\nc\r\u{1b}[31md\u{7f}\u{9b}"), "a:b c  [31md  ");
        assert_eq!(clean("x\u{202e}y\u{2028}z\u{200f}"), "x y z ");
        assert_eq!(printable("x;\u{202e}y\u{200f}\u{61c}z"), "x; y  z");
        assert!(matches!(clean("Foo::bar<T> [x] \u{e9}"), Cow::Borrowed(_)));
    }

    #[test]
    fn hidden_characters_of_names_are_escaped() {
        for (written, expected) in [
            ("", "[unknown]"),
            ("Foo::bar<T> [x] \u{e9}", "Foo::bar<T> [x] \u{e9}"),
            ("a;b\nc", "a\\u{3b}b\\u{a}c"),
            ("\u{1}\u{2}.\u{202e}\u{2028}\u{200b}", "\\u{1}\\u{2}.\\u{202e}\\u{2028}\\u{200b}"),
            (" a b ", "\\u{20}a b\\u{20}"),
            ("  ", "\\u{20}\\u{20}"),
            ("App\\User\\up", "App\\User\\up"),
            ("\\u{1}", "\\u{5c}u{1}"),
            ("a\u{a0}b\u{fe0f}", "a\\u{a0}b\\u{fe0f}"),
        ] {
            assert_eq!(name(written), expected, "{written:?}");
        }
        assert_eq!(escaped(" a;b\t"), " a;b\\u{9}");
        assert!(matches!(name("Foo::bar<T> [x] \u{e9}"), Cow::Borrowed(_)));
    }

    /// Decodes the escape at the start of a text: the character, and the length of the escape in bytes.
    fn unescape(text: &str) -> Option<(char, usize)> {
        let (digits, _) = text.strip_prefix("\\u{")?.split_once('}')?;
        Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, digits.len() + 4))
    }

    fn unescaped(mut text: &str) -> String {
        let mut name = String::new();
        while let Some(first) = text.chars().next() {
            let (c, length) = unescape(text).unwrap_or((first, first.len_utf8()));
            name.push(c);
            text = &text[length..];
        }
        name
    }

    #[test]
    fn different_names_have_different_safe_labels() {
        const PARTS: [&str; 24] = [
            "a", "b", " ", ";", ":", "\\", "\\u{", "\\u{1}", "\\u{5c}", "u{", "}", "3b", "\u{1}", "\u{1f}",
            "\n", "\r", "\u{7f}", "\u{85}", "\u{2028}", "\u{202e}", "\u{200b}", "\u{e9}", "\u{fffd}",
            "\u{feff}",
        ];
        let mut random = fastrand::Rng::with_seed(5);
        let mut changed = 0;
        for _ in 0..200_000 {
            let parts = random.usize(1..6);
            let written: String = (0..parts).map(|_| PARTS[random.usize(..PARTS.len())]).collect();
            let (label, text) = (name(&written), escaped(&written));
            // A label from which the name can be read again belongs to one name.
            assert_eq!(unescaped(&label), written, "{label}");
            assert_eq!(unescaped(&text), written, "{text}");
            assert!(
                !label.contains([';', '\n']) && label.trim() == label && printable(&label) == label,
                "{label:?}"
            );
            assert!(!text.chars().any(is_hidden), "{text:?}");
            changed += u32::from(label != written);
        }
        assert!(changed > 50_000, "{changed}");
    }
}
