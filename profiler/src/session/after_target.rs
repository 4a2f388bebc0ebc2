//! What a user may miss in the profile of a target: processes that it started and that outlive it, and CPUs on which it may not
//! run.

use profiler_processes::{CpuSet, Pid, ProcFs, ProcessTable, Status, Tid};

use super::target::TargetWatch;

/// The most processes that the warning names.
const MAX_NAMED: usize = 8;

/// The most threads of a process whose CPUs are read.
const MAX_THREADS: usize = 1024;

/// Warns of processes that the target has started and that run on after it: sampling ends with the target.
pub(super) fn warn_of_living_processes(processes: &ProcessTable) {
    let proc = ProcFs::live();
    let mut pids: Vec<_> =
        processes.living().map(|process| process.pid).filter(|pid| is_running(&proc, *pid)).collect();
    pids.sort_unstable();
    if let Some(warning) = living_warning(&pids) {
        log::warn!("{warning}");
    }
}

fn living_warning(pids: &[Pid]) -> Option<String> {
    let first = pids.first()?;
    let named: Vec<_> = pids.iter().take(MAX_NAMED).map(Pid::to_string).collect();
    let (count, named) = (pids.len(), named.join(","));
    Some(if count == 1 {
        format!(
            "sampling ended with the target, and a process that it started runs on: sample it with -p {first}"
        )
    } else {
        format!(
            "sampling ended with the target, and {count} processes that it started run on: sample them with -p {named}"
        )
    })
}

fn is_running(proc: &ProcFs, pid: Pid) -> bool {
    let status = proc.read(pid, "status").ok();
    let status = status.and_then(|text| Status::parse(&String::from_utf8_lossy(&text)));
    status.is_some_and(|status| status.living_threads() > 0)
}

/// Warns if no thread of the target may run on one of the CPUs that were sampled.
pub(super) fn warn_of_other_cpus(watch: &TargetWatch, sampled: &[u32]) {
    let proc = ProcFs::live();
    let threads = watch.pids().flat_map(|pid| proc.threads(pid, MAX_THREADS).unwrap_or_default());
    let allowed: CpuSet = threads
        .chain(watch.tids())
        .filter_map(|tid| allowed_cpus(&proc, tid))
        .flat_map(CpuSet::into_iter)
        .collect();
    if let Some(warning) = cpus_warning(&allowed, &sampled.iter().copied().collect()) {
        log::warn!("{warning}");
    }
}

/// `None` if the target may run on a CPU that was sampled, if all are sampled, and if nothing is known.
fn cpus_warning(allowed: &CpuSet, sampled: &CpuSet) -> Option<String> {
    let is_known = !allowed.is_empty() && !sampled.is_empty();
    let is_elsewhere = is_known && !allowed.iter().any(|cpu| sampled.contains(cpu));
    is_elsewhere.then(|| {
        format!("the target may not run on CPU {sampled}, only on CPU {allowed}: sample it there with -C {allowed}")
    })
}

/// The CPUs on which a thread may run (sched_setaffinity(2), cpuset(7)).
fn allowed_cpus(proc: &ProcFs, tid: Tid) -> Option<CpuSet> {
    let status = proc.read_of_thread(tid, "status").ok()?;
    let status = String::from_utf8_lossy(&status).into_owned();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_may_not_run_on_the_sampled_cpus_is_named_with_its_cpus() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let warning = cpus_warning(&set("1-3"), &set("0")).unwrap();
        assert!(
            warning.contains("not run on CPU 0, only on CPU 1-3") && warning.ends_with("-C 1-3"),
            "{warning}"
        );
        assert_eq!(cpus_warning(&set("0-3"), &set("0")), None);
        assert_eq!(cpus_warning(&CpuSet::default(), &set("0")), None);
        assert_eq!(cpus_warning(&set("0"), &CpuSet::default()), None, "all CPUs are sampled");
    }

    #[test]
    fn the_cpus_of_this_thread_are_known() {
        let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        assert!(allowed_cpus(&ProcFs::live(), own).unwrap().iter().next().is_some());
    }

    #[test]
    fn the_warning_names_some_of_the_processes() {
        assert_eq!(living_warning(&[]), None);
        assert!(living_warning(&[Pid(7)]).unwrap().ends_with("runs on: sample it with -p 7"));
        let many: Vec<_> = (1..=20).map(Pid).collect();
        let warning = living_warning(&many).unwrap();
        assert!(warning.contains("20 processes") && warning.ends_with("-p 1,2,3,4,5,6,7,8"), "{warning}");
    }
}
