//! Labels of frames, threads, processes and containers in text outputs, with names of the target escaped.
//!
//! A name of a hostile target must not break a line, a stack or a terminal.

use std::borrow::Cow;

use super::OutputOptions;
use profiler_profile::{Frame, FrameKind, Process, Profile, StringId, Thread};

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

/// The label of a container, with as much of its id as container runtimes show.
pub(super) fn container(profile: &Profile, id: Option<StringId>) -> String {
    const SHOWN_CHARS: usize = 12;
    id.map_or("no container".to_owned(), |id| {
        let shown: String = profile.string(id).chars().take(SHOWN_CHARS).collect();
        format!("container {}", clean(&shown))
    })
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
