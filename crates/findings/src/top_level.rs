//! Tells a thread that waits in its main loop, for work, from one that waits within its work.

use profiler_profile::{Frame, FrameKind, Profile};

use crate::{
    frames::{function, is_application, is_runtime, without_arguments},
    pattern::matches_any,
    primitives::Leaf,
};

/// The functions that start a program.
const PROGRAM_ROOTS: &[&str] = &["__libc_start_*", "libc_start_main*", "runtime.main"];

/// The functions that start a thread.
const THREAD_ROOTS: &[&str] = &["start_thread", "clone*", "__clone*"];

/// Functions of interpreters: the functions of the interpreted program have no frames of their own, so that a main loop looks
/// like a request.
const INTERPRETERS: &[&str] =
    &["_PyEval_*", "PyEval_*", "execute_ex", "zend_*", "lua_*", "luaV_*", "rb_*", "Perl_*", "beam_*"];

/// The most functions of a main loop between the start of a thread and a wait: `main`, set-up, loop, wait, wrappers. Requests
/// pass through more.
const MAX_FUNCTIONS: usize = 8;

/// Words in names of functions that do work, or need a resource: below them, a wait is a part of it.
const WORDS_OF_WORK: &[&str] = &[
    "acquire",
    "answer",
    "append",
    "ask",
    "backend",
    "barrier",
    "call",
    "commit",
    "compute",
    "connect",
    "delete",
    "enqueue",
    "exec",
    "execute",
    "executor",
    "fetch",
    "flush",
    "fsync",
    "full",
    "get",
    "insert",
    "invoke",
    "join",
    "load",
    "lock",
    "lookup",
    "mutex",
    "portal",
    "produce",
    "producer",
    "publish",
    "push",
    "put",
    "query",
    "render",
    "reply",
    "request",
    "resolve",
    "response",
    "result",
    "room",
    "semaphore",
    "send",
    "slot",
    "space",
    "statement",
    "store",
    "submit",
    "sync",
    "transaction",
    "update",
    "upstream",
    "utility",
    "write",
];

/// Whether the function of a frame does work by its name.
pub(crate) fn is_work(profile: &Profile, frame: &Frame) -> bool {
    is_application(profile, frame)
        && words(function(profile, frame)).any(|word| WORDS_OF_WORK.contains(&word.as_str()))
}

/// The words of a name without its arguments and those of its templates: `heap`, `fetch`, `row` of `Heap::fetchRow<Lock>(int)`.
pub(crate) fn words(name: &str) -> impl Iterator<Item = String> {
    let name = without_arguments(name);
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphabetic()) {
            word.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// Whether the callers of a primitive are those of a main loop: few functions of native code up to the start of the program
/// or of the thread, and none that does work. `callers` are leaf first.
pub(crate) fn is_main_loop<'a>(
    profile: &Profile,
    leaf: Leaf,
    callers: impl Iterator<Item = &'a Frame>,
) -> bool {
    let mut functions = 0;
    for frame in callers {
        let name = function(profile, frame);
        let is_program = matches_any(PROGRAM_ROOTS, name);
        if is_program || matches_any(THREAD_ROOTS, name) {
            return is_place_of_loop(leaf, is_program);
        }
        let is_native = matches!(frame.kind, FrameKind::Native | FrameKind::Inlined | FrameKind::Kernel);
        if !is_native || matches_any(INTERPRETERS, name) || is_work(profile, frame) {
            return false;
        }
        functions += usize::from(frame.kind != FrameKind::Kernel && !is_runtime(profile, frame));
        if functions > MAX_FUNCTIONS {
            return false;
        }
    }
    false
}

/// Whether a loop waits in this way: one over descriptors is in the main thread. Other threads also wait so for a single
/// response. A semaphore can be a limit.
fn is_place_of_loop(leaf: Leaf, is_program: bool) -> bool {
    match leaf {
        Leaf::Signal | Leaf::TimedSignal | Leaf::Process => true,
        Leaf::Descriptors | Leaf::Selection => is_program,
        Leaf::Own | Leaf::Semaphore | Leaf::Time => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_divided_into_words() {
        for (name, expected) in [
            ("Heap::fetchRow(int)", &["heap", "fetch", "row"][..]),
            ("XactLockTableWait", &["xact", "lock", "table", "wait"]),
            ("mysql_lock_tables", &["mysql", "lock", "tables"]),
            ("(anonymous namespace)::run2", &["anonymous", "namespace", "run"]),
            ("slave_deadlock_handler", &["slave", "deadlock", "handler"]),
            (
                "void asio::posix_event::wait<asio::mutex::scoped_lock>(int)",
                &["void", "asio", "posix", "event", "wait"],
            ),
            ("<shop::Queue as shop::Push>::run", &["shop", "queue", "as", "shop", "push", "run"]),
            ("", &[]),
        ] {
            assert_eq!(words(name).collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
