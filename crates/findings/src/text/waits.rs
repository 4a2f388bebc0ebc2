//! The text of findings on threads that wait for collections, services, CPUs and files.

use profiler_profile::{FindingFacts, Partner};

use super::{at_a_time, method_after, partner_after, share, threads};
use crate::thread_time::Activity;

/// The slow thread of a barrier.
pub(crate) struct Slowest<'a> {
    pub(crate) tid: u32,
    pub(crate) comm: &'a str,
    /// The method in which it stays.
    pub(crate) method: &'a str,
    pub(crate) activity: Activity,
    pub(crate) percent: f64,
    /// Whether it was seen at the barrier.
    pub(crate) arrives: bool,
}

pub(super) fn gc_suspension(facts: &FindingFacts, is_requested: bool) -> (String, String) {
    let evidence = format!(
        "{} suspended for garbage collections in {}",
        if threads(facts) == 1 {
            "1 thread is".to_owned()
        } else {
            format!("{} threads are", threads(facts))
        },
        share(facts)
    );
    let remedy = if is_requested {
        "do not call GC.Collect: the runtime collects when it has to"
    } else {
        "allocate less, and keep fewer objects alive"
    };
    (evidence, remedy.to_owned())
}

pub(super) fn slow_downstream(facts: &FindingFacts, is_at_client: bool) -> (String, String) {
    let evidence = format!(
        "{:.1} of {} threads at a time wait for sockets{} ({}){}",
        at_a_time(facts),
        threads(facts),
        method_after(" below ", facts),
        share(facts),
        partner_after("; at the end for ", facts)
    );
    let remedy = match &facts.partner {
        Some(Partner { name, .. }) => format!("examine {name}, and call it asynchronously"),
        None if is_at_client => "examine the service that it calls, and call it asynchronously".to_owned(),
        None => "receive and send asynchronously: meanwhile, each thread waits for one peer".to_owned(),
    };
    (evidence, remedy)
}

pub(super) fn name_resolution(facts: &FindingFacts) -> (String, String) {
    let evidence = format!(
        "{:.1} of {} threads at a time wait for the addresses of hosts{} ({}){}",
        at_a_time(facts),
        threads(facts),
        method_after(" below ", facts),
        share(facts),
        partner_after("; at the end for ", facts)
    );
    let remedy = "examine the name servers of /etc/resolv.conf, or keep addresses and connections";
    (evidence, remedy.to_owned())
}

pub(super) fn child_process(facts: &FindingFacts) -> (String, String) {
    let evidence = format!(
        "{:.1} of {} threads at a time wait for child processes{} ({}){}",
        at_a_time(facts),
        threads(facts),
        method_after(" below ", facts),
        share(facts),
        partner_after("; at the end for ", facts)
    );
    let remedy = match &facts.partner {
        Some(Partner { name, .. }) => {
            format!("examine {name}, or do its work without a process for each request")
        }
        None => "examine these processes, or do their work without a process for each request".to_owned(),
    };
    (evidence, remedy)
}

pub(super) fn barrier_skew(facts: &FindingFacts, slowest: &Slowest<'_>) -> (String, String) {
    let Slowest { tid, comm, method, activity, percent, .. } = slowest;
    let evidence = format!(
        "{:.1} of {} threads at a time wait at a barrier{} ({}); the slow one is in {method} ({}), thread {tid} ({comm})",
        at_a_time(facts),
        threads(facts),
        method_after(" in ", facts),
        share(facts),
        activity.text(*percent)
    );
    (evidence, "divide the work evenly, or let fewer threads wait for each other".to_owned())
}

pub(super) fn run_queue(facts: &FindingFacts) -> (String, String) {
    let evidence = format!("{:.1} threads at a time wait for a CPU, {}", at_a_time(facts), share(facts));
    (evidence, "run fewer threads, or move other load away".to_owned())
}

pub(super) fn cpu_quota(facts: &FindingFacts) -> (String, String) {
    let evidence = format!(
        "{:.1} threads at a time are throttled by the CPU quota of their cgroup, {}",
        at_a_time(facts),
        share(facts)
    );
    (evidence, "raise the CPU limit of the container, or run fewer threads".to_owned())
}

pub(super) fn disk(facts: &FindingFacts) -> (String, String) {
    let evidence = format!(
        "{:.1} threads at a time wait for files ({}){}{}",
        at_a_time(facts),
        share(facts),
        method_after(", most below ", facts),
        partner_after("; at the end on ", facts)
    );
    (evidence, "write and synchronize less often, read ahead, or use a faster disk".to_owned())
}

pub(super) fn blocked_finalizer(
    outermost: &str,
    innermost: &str,
    activity: &str,
    waiting: usize,
) -> (String, String) {
    let at = if innermost == outermost { String::new() } else { format!(" at {innermost}") };
    let waiters = match waiting {
        0 => String::new(),
        1 => "; 1 thread waits for them in GC.WaitForPendingFinalizers".to_owned(),
        count => format!("; {count} threads wait for them in GC.WaitForPendingFinalizers"),
    };
    let evidence = format!(
        "the finalizer thread is in {outermost} all the time ({activity}){at}, and other finalizers wait for their turn{waiters}"
    );
    let remedy =
        "do not wait or compute in a finalizer: dispose of objects, or hold resources in a SafeHandle";
    (evidence, remedy.to_owned())
}
