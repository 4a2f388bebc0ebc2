//! The text of findings on CPU time.

use profiler_profile::FindingFacts;

use super::{method_after, percent, share};
use crate::cpu_rules::CpuRule;

/// CPU time of a rule, and its cause.
pub(crate) struct CpuProblem<'a> {
    pub(crate) rule: &'static CpuRule,
    pub(crate) cause: CpuCause,
    /// The name of the thread of the cause.
    pub(crate) thread: &'a str,
}

/// What samples and events say beyond a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuCause {
    /// Nothing.
    Unknown,
    /// Most compilations are of methods that the program generates.
    DynamicMethods,
    /// The program calls `GC.Collect`.
    RequestedCollections,
    /// One method spins, mostly in one thread.
    Site,
}

impl CpuProblem<'_> {
    pub(super) fn evidence(&self, facts: &FindingFacts) -> String {
        let below = method_after(" below ", facts);
        let details = match self.cause {
            CpuCause::Unknown => String::new(),
            CpuCause::DynamicMethods => format!("; most are dynamic methods, compiled{below}"),
            CpuCause::RequestedCollections => format!(", requested by GC.Collect{below}"),
            CpuCause::Site => match facts.cause_thread {
                Some(tid) => format!("{below} in thread {tid} ({})", self.thread),
                None => below,
            },
        };
        format!("{} {}{details}", share(facts), self.rule.activity)
    }

    pub(super) fn remedy(&self) -> &'static str {
        match self.cause {
            CpuCause::Unknown | CpuCause::Site => self.rule.remedy,
            CpuCause::DynamicMethods => "compile once, and cache the compiled delegate",
            CpuCause::RequestedCollections => "do not call GC.Collect: the runtime collects when it has to",
        }
    }
}

pub(super) fn busy_thread(facts: &FindingFacts, name: &str) -> (String, String) {
    let function = facts.place.as_ref().map(|place| place.method.as_str());
    let evidence = format!(
        "the event loop of thread {name} computes all the time, {:.0} % of it in {}, and handles no other event meanwhile",
        percent(facts),
        function.unwrap_or("JIT code without names"),
    );
    let remedy = match function {
        Some(function) => format!("divide the work of {function}, or move it to another thread"),
        None => "divide the work of the callback, or move it to another thread".to_owned(),
    };
    (evidence, remedy)
}
