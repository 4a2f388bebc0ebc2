//! Tells threads that wait for room in a queue of native code from those that wait for an item, by the words in the names of their
//! functions: both wait on condition variables. Queues of libraries have rules.

use profiler_profile::{Profile, Stack};

use crate::{frames::application_methods, pattern::matches_any, rules::CONDITION_WAITS, top_level::words};

/// What a thread waits for at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    Capacity,
    Item,
}

/// Words in names of functions that add items to a queue.
const ADDING: &[&str] = &["enqueue", "push"];

/// Words in names of functions that add something, where another word says that this is a queue.
const ADDING_TO_QUEUE: &[&str] = &["add", "append", "insert", "offer", "put"];
const QUEUES: &[&str] = &["buffer", "channel", "fifo", "queue", "ring"];

/// Words in names of functions that take items from a queue.
const TAKING: &[&str] = &["consume", "dequeue", "get", "next", "pop", "pull", "receive", "recv", "take"];

/// What a thread that waits on a condition variable in this stack waits for; `None` where its function is not that of a queue.
pub(crate) fn queue_end(profile: &Profile, stack: &Stack) -> Option<QueueEnd> {
    let function = application_methods(profile, stack).find(|name| !matches_any(CONDITION_WAITS, name))?;
    let words: Vec<_> = words(function).collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    if has(TAKING) {
        return Some(QueueEnd::Item);
    }
    (has(ADDING) || (has(ADDING_TO_QUEUE) && has(QUEUES))).then_some(QueueEnd::Capacity)
}
