//! Checks of kernel features, by trying each one.

use std::{
    fs::{self, File},
    io,
};

use profiler_common::{FRAMES_PER_TAIL_CALL, MAX_FRAMES};
use profiler_sampler::abilities;
use profiler_symbolize::kernel::shows_addresses;

use super::{Finding, Remedy, Situation, Status, remedy::MIN_KERNEL};
use crate::{
    error::{ErrorKind, Operation},
    sandbox::describe_limits,
    sys::capability::Capability,
};

/// The features that read structures of the kernel.
pub(super) const KERNEL_STRUCTURES: &str =
    "sampling of child processes, cgroups of version 1, nested PID namespaces";

pub(super) fn findings(situation: &Situation) -> Vec<Finding> {
    let needed = |name, operation, result: io::Result<()>| essential(situation, name, operation, result);
    let mut findings = vec![
        release(situation),
        needed("timer event", Operation::OpenPerfEvent, abilities::open_timer()),
        needed("process events", Operation::OpenPerfEvent, abilities::open_sideband()),
        needed("BPF map", Operation::CreateMap, abilities::create_map()),
        needed("BPF ring buffer", Operation::CreateMap, abilities::create_ring_buffer()),
        needed("BPF program", Operation::LoadProgram, abilities::load_program()),
    ];
    // The BPF programs need all of these.
    if findings.iter().all(|finding| finding.status == Status::Ok) {
        findings.push(bpf_programs(situation, abilities::load_sampling_programs()));
        findings.push(unwinder(abilities::has_bpf_loop()));
        findings.push(short_lived_processes(abilities::searches_vmas()));
        findings.push(waits(situation, "wall-clock samples", "--wall", abilities::check_wall_samples()));
        findings.push(waits(situation, "off-CPU time", "--off-cpu", abilities::check_off_cpu_time()));
    }
    findings.extend([
        tracepoint(situation, abilities::open_raw_tracepoint()),
        types(situation),
        kernel_symbols(situation, shows_kernel_addresses()),
        map_files(situation, open_own_map_file()),
        hardware_events(abilities::has_cycle_counter()),
    ]);
    findings.extend(describe_limits().map(|limits| Finding::ok("sandbox", limits)));
    findings
}

fn release(situation: &Situation) -> Finding {
    const NAME: &str = "kernel";
    let observed = rustix::system::uname().release().to_string_lossy().into_owned();
    if situation.kernel < MIN_KERNEL {
        return Finding::missing(NAME, observed, Remedy::NewerKernel);
    }
    Finding::ok(NAME, observed)
}

/// A feature without which profiling is impossible.
fn essential(
    situation: &Situation,
    name: &'static str,
    operation: Operation,
    result: io::Result<()>,
) -> Finding {
    match result {
        Ok(()) => Finding::ok(name, "works"),
        Err(error) => Finding::missing(name, error.to_string(), remedy(situation, operation, &error)),
    }
}

fn bpf_programs(situation: &Situation, result: profiler_sampler::Result<()>) -> Finding {
    const NAME: &str = "profiler's BPF programs";
    match result {
        Ok(()) => Finding::ok(NAME, "loads"),
        Err(error) => Finding::missing(NAME, format!("{error:?}"), situation.remedy(error.kind)),
    }
}

/// Whether the kernel has what samples of threads that wait need.
fn waits(
    situation: &Situation,
    name: &'static str,
    option: &'static str,
    result: profiler_sampler::Result<()>,
) -> Finding {
    match result {
        Ok(()) => Finding::ok(name, format!("possible ({option})")),
        Err(error) => Finding::degraded(name, error.to_string(), option, situation.remedy(error.kind)),
    }
}

/// The loop construct of the BPF unwinder, and its depth limit.
fn unwinder(has_bpf_loop: bool) -> Finding {
    /// `MAX_TAIL_CALL_CNT` of `include/linux/bpf.h`.
    const MAX_TAIL_CALLS: u32 = 33;
    let observed = if has_bpf_loop {
        format!("bpf_loop, {MAX_FRAMES} frames")
    } else {
        format!(
            "tail calls, {} frames; from Linux 5.17 on {MAX_FRAMES}",
            MAX_TAIL_CALLS * FRAMES_PER_TAIL_CALL
        )
    };
    Finding::ok("unwinder", observed)
}

/// Whether the unwinder needs mappings from `/proc`, which processes that end within milliseconds never show.
fn short_lived_processes(searches_vmas: bool) -> Finding {
    let observed = if searches_vmas {
        "unwound from their first sample"
    } else {
        "unwound by frame pointer at first; from Linux 6.1 on by tables"
    };
    Finding::ok("short-lived processes", observed.to_owned())
}

fn tracepoint(situation: &Situation, result: io::Result<()>) -> Finding {
    const NAME: &str = "raw tracepoint";
    match result {
        Ok(()) => Finding::ok(NAME, "works"),
        Err(error) => {
            let remedy = remedy(situation, Operation::LoadProgram, &error);
            Finding::degraded(NAME, error.to_string(), "sampling of child processes", remedy)
        }
    }
}

fn types(situation: &Situation) -> Finding {
    const NAME: &str = "kernel types (BTF)";
    if situation.btf {
        return Finding::ok(NAME, "there");
    }
    Finding::degraded(NAME, "not there", KERNEL_STRUCTURES, Remedy::KernelWithBtf)
}

fn kernel_symbols(situation: &Situation, shown: io::Result<bool>) -> Finding {
    const NAME: &str = "kernel symbols";
    const LACKS: &str = "names of kernel functions";
    match shown {
        Ok(true) => Finding::ok(NAME, "shown"),
        Ok(false) => {
            let remedy = situation.remedy_for_hidden_addresses();
            Finding::degraded(NAME, "addresses are hidden", LACKS, remedy)
        }
        Err(error) => Finding::degraded(NAME, error.to_string(), LACKS, None),
    }
}

fn map_files(situation: &Situation, opened: io::Result<()>) -> Finding {
    const NAME: &str = "map_files";
    match opened {
        Ok(()) => Finding::ok(NAME, "readable"),
        Err(error) => {
            let missing = !situation.has(Capability::CheckpointRestore);
            let remedy = missing.then(|| situation.remedy_for_missing(&[Capability::CheckpointRestore], &[]));
            Finding::degraded(NAME, error.to_string(), "names from deleted and replaced files", remedy)
        }
    }
}

fn hardware_events(present: bool) -> Finding {
    Finding::ok("hardware events", if present { "there" } else { "none here: the timer triggers samples" })
}

/// The remedy for this check alone; other checks have their own.
fn remedy(situation: &Situation, operation: Operation, error: &io::Error) -> Option<Remedy> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(situation.remedy_for_refusal(operation, &[])),
        _ => situation.remedy(ErrorKind::Unsupported),
    }
}

fn shows_kernel_addresses() -> io::Result<bool> {
    shows_addresses(File::open("/proc/kallsyms")?)
}

fn open_own_map_file() -> io::Result<()> {
    let first = fs::read_dir("/proc/self/map_files")?.next().ok_or(io::ErrorKind::NotFound)??;
    File::open(first.path()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{KernelRelease, remedy::tests::root_with},
        *,
    };

    fn refused() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn a_refused_operation_names_its_capability() {
        let finding = essential(&root_with(&[]), "BPF map", Operation::CreateMap, refused());
        assert_eq!(finding.status, Status::Missing);
        assert_eq!(finding.remedy, Some(Remedy::Grant(vec![Capability::Bpf])));
    }

    #[test]
    fn a_missing_kernel_feature_needs_a_newer_kernel() {
        let old = Situation { kernel: KernelRelease { major: 5, minor: 4 }, ..root_with(&[]) };
        let unknown = Err(io::Error::from_raw_os_error(libc::EINVAL));
        let finding = essential(&old, "BPF ring buffer", Operation::CreateMap, unknown);
        assert_eq!(finding.remedy, Some(Remedy::NewerKernel));
        assert_eq!(release(&old).status, Status::Missing);
    }

    #[test]
    fn the_remedy_for_hidden_addresses_names_what_hides_them() {
        let remedy = |restrict, capabilities: &[Capability]| {
            let situation = Situation { kptr_restrict: Some(restrict), ..root_with(capabilities) };
            kernel_symbols(&situation, Ok(false)).remedy
        };
        let sysctl = Remedy::SetSysctl { name: "kptr_restrict", value: 1 };
        assert_eq!(remedy(2, &[Capability::Syslog]), Some(sysctl));
        assert_eq!(remedy(1, &[]), Some(Remedy::Grant(vec![Capability::Syslog])));
        assert_eq!(remedy(0, &[]), Some(Remedy::Grant(vec![Capability::Syslog])));
        assert_eq!(remedy(1, &[Capability::Syslog]), None);
    }

    #[test]
    fn the_unwinder_finding_has_the_depth_limit() {
        assert!(unwinder(true).observed.starts_with("bpf_loop, 1024 frames"));
        assert!(unwinder(false).observed.starts_with("tail calls, 264 frames"));
    }

    #[test]
    fn the_finding_of_short_lived_processes_names_the_kernel_that_unwinds_them() {
        assert!(short_lived_processes(true).observed.contains("first sample"));
        assert!(short_lived_processes(false).observed.contains("from Linux 6.1 on"));
    }

    #[test]
    fn a_kernel_that_cannot_sample_waits_only_degrades() {
        let refused = Err(profiler_sampler::Error::new(ErrorKind::Unsupported, "this kernel has no BTF"));
        let finding = waits(&root_with(&[]), "wall-clock samples", "--wall", refused);
        assert_eq!((finding.status, finding.lacks), (Status::Degraded, Some("--wall")));
        assert_eq!(finding.observed, "this kernel has no BTF");
        assert_eq!(waits(&root_with(&[]), "off-CPU time", "--off-cpu", Ok(())).status, Status::Ok);
    }

    #[test]
    fn missing_optional_features_only_degrade() {
        let situation = Situation { btf: false, ..root_with(&[]) };
        for finding in
            [tracepoint(&situation, refused()), types(&situation), map_files(&situation, refused())]
        {
            assert_eq!(finding.status, Status::Degraded);
            assert!(finding.lacks.is_some() && finding.remedy.is_some(), "{finding:?}");
        }
        assert_eq!(hardware_events(false).status, Status::Ok);
    }
}
