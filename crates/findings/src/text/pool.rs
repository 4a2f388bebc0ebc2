//! The text of findings on thread pools.

use profiler_profile::FindingFacts;

use super::{method_after, threads};
use crate::frames::short;

pub(super) fn evidence(
    facts: &FindingFacts,
    workers: usize,
    is_at_semaphores: bool,
    other_methods: usize,
    growth: Option<f64>,
) -> String {
    let waits = if is_at_semaphores { "SemaphoreSlim.Wait" } else { "Task.Wait" };
    let others =
        if other_methods == 0 { String::new() } else { format!(" and {other_methods} other methods") };
    let cause = if is_at_semaphores { "" } else { " (sync over async)" };
    let growth = growth.map(|growth| format!("; the pool grew by {growth:.1} threads/s")).unwrap_or_default();
    format!(
        "{} of {workers} pool workers block in {waits}{}{others}{cause}{growth}",
        threads(facts),
        method_after(" below ", facts)
    )
}

/// The remedy names a method that has most of the time.
pub(super) fn remedy(facts: &FindingFacts, is_at_semaphores: bool, other_methods: usize) -> String {
    let method = facts.place.as_ref().filter(|_| other_methods == 0).map(|place| short(&place.method));
    match (method, is_at_semaphores) {
        (Some(method), false) => format!("make {method} asynchronous"),
        (None, false) => "make the methods asynchronous that wait for tasks".to_owned(),
        (method, true) => format!(
            "wait with WaitAsync{}, and let more threads pass if what it protects allows it",
            method.map(|method| format!(" in {method}")).unwrap_or_default()
        ),
    }
}
