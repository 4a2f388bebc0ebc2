//! Adds the findings to a profile, with what threads wait for beyond their processes where a finding needs it.

use profiler_findings::{Partners, threads_with_unknown_partners};
use profiler_processes::{PartnerRole, Pid, ProcFs, Tid, WaitPartner};
use profiler_profile::{Partner, Profile};

/// Sets the findings of a profile whose processes run on this machine, as [`Session::take_profile`](crate::Session::take_profile) does:
/// with the processes and devices for which their threads wait now. For profiles that were joined, or have an incident.
pub fn analyze_running(profile: &mut Profile) {
    analyze(profile, &ProcFs::live());
}

/// Analyzes a profile whose threads still wait for what they waited for.
pub(super) fn analyze(profile: &mut Profile, proc: &ProcFs) {
    profiler_findings::analyze(profile);
    let threads = threads_with_unknown_partners(profile);
    if threads.is_empty() {
        return;
    }
    let threads: Vec<_> = threads.into_iter().map(|(pid, tid)| (Pid(pid), Tid(tid))).collect();
    match proc.wait_partners(&threads) {
        Ok(found) if !found.is_empty() => {
            profiler_findings::analyze_with_partners(profile, &partners(found));
        }
        Ok(_) => {}
        Err(error) => log::debug!("the processes for which threads wait are not read: {error}"),
    }
}

fn partners(found: Vec<WaitPartner>) -> Partners {
    let mut partners = Partners::default();
    for WaitPartner { tid: Tid(tid), role, name, pid, serves } in found {
        let process = pid.map(|pid| pid.0);
        if serves {
            partners.add_server(tid);
        }
        match role {
            PartnerRole::Service => partners.add_service(tid, Partner { name, process }),
            PartnerRole::Client => partners.add_client(tid),
            PartnerRole::Device => partners.add_device(tid, Partner { name, process }),
            PartnerRole::Pipe => partners.add_process(tid, Partner { name, process }),
            PartnerRole::Child => partners.add_child(tid, Partner { name, process }),
        }
    }
    partners
}
