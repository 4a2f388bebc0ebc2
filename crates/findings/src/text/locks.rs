//! The text of findings on locks that no thread gets.

use std::collections::BTreeMap;

use profiler_profile::{FindingFacts, sum};

use super::partner_after;
use crate::{
    WaitCause,
    locks::{
        managed::ManagedOwner,
        owner::{Owner, Owners, Relation},
        stuck_threads::{LockWait, StuckThreads},
    },
    thread_time::Activity,
};

/// The most methods, and the most threads of a method, that a text names.
const MAX_NAMED: usize = 3;

/// The evidence and the remedy of a deadlock, or of a lock that its owner holds.
pub(super) fn stuck(stuck: &StuckThreads<'_>, facts: &FindingFacts) -> (String, String) {
    const ORDER: &str =
        "take locks in the same order everywhere, and wait for nothing else while a lock is held";
    let waits = waits(&stuck.threads, stuck.shortest_ns());
    if stuck.is_deadlock() {
        (format!("{waits}{}", cycle(&stuck.owners)), ORDER.to_owned())
    } else {
        let partner = partner_after("; at the end, it waits for ", facts);
        (format!("{waits}; {}{partner}", owners(&stuck.owners)), remedy(&stuck.owners))
    }
}

/// The waits: `2 threads wait for locks in Bank.Debit (thread 12) and Bank.Credit (thread 13), and none gets one in the last 4.0 s`.
fn waits(threads: &[LockWait<'_>], shortest_ns: u64) -> String {
    const NS_PER_S: f64 = 1e9;
    let mut methods = BTreeMap::<&str, (u64, Vec<u32>)>::new();
    for wait in threads {
        let Some(method) = wait.method else { continue };
        let (value, tids) = methods.entry(method).or_default();
        sum::add(value, wait.value);
        tids.push(wait.tid);
    }
    let mut methods: Vec<_> = methods.into_iter().collect();
    methods.sort_by_key(|(_, (value, _))| std::cmp::Reverse(*value));
    let named = methods.iter().take(MAX_NAMED);
    let mut named: Vec<_> = named.map(|(method, (_, tids))| format!("{method}{}", tids_text(tids))).collect();
    if methods.len() > MAX_NAMED {
        named.push(format!("{} other methods", methods.len() - MAX_NAMED));
    }
    let place = if named.is_empty() { String::new() } else { format!(" in {}", list(&named)) };
    format!(
        "{} threads wait for locks{place}, and none gets one in the last {:.1} s",
        threads.len(),
        shortest_ns as f64 / NS_PER_S
    )
}

/// The threads that can own the lock, and what they do.
fn owners(owners: &Owners<'_>) -> String {
    let first = &owners.threads[..owners.threads.len().min(MAX_NAMED)];
    // A preposition for all of them, unless the first one begins with its thread.
    let has_one_preposition = first.first().is_some_and(|owner| owner.managed.is_none());
    let preposition = if has_one_preposition { "in " } else { "" };
    let named = first.iter().map(|owner| match owner.managed {
        None if !has_one_preposition => format!("in {}", place(owner)),
        None => place(owner),
        Some(managed) => {
            format!("thread {}, in {}{}", managed.label(), activity_in(owner), managed.exception_clause())
        }
    });
    let named: Vec<_> = named.collect();
    let named = format!("{preposition}{}", list(&named));
    match (owners.relation, &owners.threads[..]) {
        (Relation::Known | Relation::SameMethod, [_]) => format!("the owner is {named}"),
        (Relation::Known, _) => format!("the owners are {named}"),
        (Relation::SameType, [_]) => format!("the owner is most likely {named}"),
        (Relation::SameMethod | Relation::SameType, threads) => {
            format!("the owner is most likely one of {} threads: {named}", threads.len())
        }
        (Relation::None, _) => {
            let places: Vec<_> = first.iter().map(place).collect();
            format!("they wait for each other, or for a thread that can be in {}", places.join(", or in "))
        }
    }
}

/// What the memory of the process says about a deadlock, with the managed threads that own the locks.
fn cycle(owners: &Owners<'_>) -> String {
    const OWNED: &str = "; each of these locks is owned by one of these threads";
    if owners.relation != Relation::Known {
        return String::new();
    }
    let mut labels: Vec<_> = owners.waiting.iter().take(MAX_NAMED).map(ManagedOwner::label).collect();
    match owners.waiting.len() - labels.len() {
        0 => {}
        1 => labels.push("1 other".to_owned()),
        others => labels.push(format!("{others} others")),
    }
    if labels.is_empty() { OWNED.to_owned() } else { format!("{OWNED}: {}", list(&labels)) }
}

/// The place of an owner: `Shop.Price.Compute (99 % on a CPU) at Shop.Price.Sum, thread 12 (worker)`.
fn place(owner: &Owner<'_>) -> String {
    format!("{}, thread {} ({})", activity_in(owner), owner.tid, owner.comm)
}

/// The place and the activity: `Shop.Price.Compute (99 % on a CPU) at Shop.Price.Sum`.
fn activity_in(owner: &Owner<'_>) -> String {
    let Owner { method, innermost, percent, .. } = owner;
    let activity = owner.activity.text(*percent);
    let at = if innermost == method { String::new() } else { format!(" at {innermost}") };
    format!("{method} ({activity}){at}")
}

/// What helps against a lock that its owner holds.
fn remedy(owners: &Owners<'_>) -> String {
    const ORDER: &str = "take locks in the same order everywhere, and do not hold one during long work";
    let activity = owners.threads.first().map(|owner| owner.activity);
    match (owners.relation, activity) {
        (Relation::None, _) | (_, None) => ORDER,
        (_, Some(Activity::Runs | Activity::WaitsForCpu)) => {
            "compute before the lock is taken, and hold it to publish the result"
        }
        (_, Some(Activity::Waits(WaitCause::Sleep))) => "do not sleep while a lock is held",
        (_, Some(Activity::Waits(WaitCause::SocketIo | WaitCause::FileIo))) => {
            "read and write sockets and files before the lock is taken"
        }
        (_, Some(Activity::Waits(WaitCause::NameResolution))) => "resolve names before the lock is taken",
        (_, Some(Activity::Waits(WaitCause::ChildProcess))) => "run other programs before the lock is taken",
        (_, Some(Activity::Waits(_))) => "wait for nothing else while a lock is held",
    }
    .to_owned()
}

/// The threads in parentheses, where they are few.
fn tids_text(tids: &[u32]) -> String {
    match tids {
        [tid] => format!(" (thread {tid})"),
        tids if tids.len() <= MAX_NAMED => {
            let tids: Vec<_> = tids.iter().map(u32::to_string).collect();
            format!(" (threads {})", list(&tids))
        }
        _ => String::new(),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [item] => item.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
