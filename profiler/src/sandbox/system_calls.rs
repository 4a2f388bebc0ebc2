//! The seccomp filter (seccomp(2)): the system calls that are needed once a job has begun. All others fail with `EPERM`.
//!
//! Wherever an argument decides, it is checked: threads but no processes, memory but no new code, BPF maps but no programs,
//! sockets of the families that are needed, no input into the terminal.

use std::{collections::BTreeMap, io};

use libc::{SYS_bpf, SYS_clone, SYS_clone3, SYS_ioctl, SYS_mmap, SYS_mprotect, SYS_prctl, SYS_socket};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

/// What the process does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Runs a session.
    Session {
        /// What other threads do, or the session itself with symbol servers.
        network: Network,
    },
    /// Reads recordings or captures, and writes outputs.
    Files {
        /// With symbol servers.
        network: Network,
    },
}

/// How the process uses the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// It does not.
    None,
    /// It connects to servers.
    Client,
    /// It also accepts connections on sockets that listen already.
    ClientAndServer,
}

/// The calls of every job.
const COMMON: &[libc::c_long] = &[
    // Files.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads, waiting and time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Signals.
    libc::SYS_kill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // This process and machine.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_setfsuid,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Calls that later architectures do not have.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[libc::c_long] = &[];

/// The calls of a session: perf events of CPUs that come online, and the processes that it watches and waits for.
const SESSION: &[libc::c_long] = &[
    libc::SYS_getpriority,
    libc::SYS_membarrier,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_sched_setscheduler,
    libc::SYS_setpriority,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// The calls on sockets of all families.
const SOCKETS: &[libc::c_long] = &[
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// The netlink protocol of requests about sockets (include/uapi/linux/netlink.h).
const NETLINK_SOCK_DIAG: u64 = 4;

/// What resolvers of host names call as well.
const NETWORK: &[libc::c_long] = &[libc::SYS_bind, libc::SYS_recvmmsg, libc::SYS_sendmmsg];

/// What a server calls once it listens.
const SERVER: &[libc::c_long] = &[libc::SYS_accept4];

/// The commands of bpf(2) on maps, for rows of further unwind tables, and to run the program that names kernel addresses
/// (`enum bpf_cmd`, `include/uapi/linux/bpf.h`).
const BPF_COMMANDS: &[u64] = &[
    0,  // BPF_MAP_CREATE
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    10, // BPF_PROG_TEST_RUN
    15, // BPF_OBJ_GET_INFO_BY_FD
    22, // BPF_MAP_FREEZE
    24, // BPF_MAP_LOOKUP_BATCH
    26, // BPF_MAP_UPDATE_BATCH
    28, // BPF_LINK_CREATE
    33, // BPF_ITER_CREATE
];

/// Puts bytes into the input of a terminal (`include/uapi/asm-generic/ioctls.h`).
const TIOCSTI: u64 = 0x5412;
/// Pastes the selection of a console into its input.
const TIOCLINUX: u64 = 0x541c;

/// Refuses all system calls that the job does not need, in all threads of the process and forever.
pub(super) fn filter(job: Job) -> io::Result<()> {
    for program in programs(job).map_err(io::Error::other)? {
        match apply_filter_all_threads(&program) {
            // A kernel that was built without seccomp.
            Err(seccompiler::Error::Seccomp(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                log::info!("system calls are not filtered: {error}");
            }
            Err(seccompiler::Error::Seccomp(error)) => return Err(error),
            result => result.map_err(io::Error::other)?,
        }
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Result<T> = std::result::Result<T, seccompiler::BackendError>;

/// The filters in the order in which they are installed: the last one refuses to install another.
fn programs(job: Job) -> Result<[BpfProgram; 2]> {
    Ok([without_clone3()?, program(rules(job)?, SeccompAction::Errno(libc::EPERM as u32))?])
}

fn program(rules: Rules, otherwise: SeccompAction) -> Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, architecture)?.try_into()
}

/// The arguments of clone3(2) are in memory, where no filter sees them: C libraries call clone(2) where it does not exist.
fn without_clone3() -> Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let rules = [(SYS_clone3, Vec::new())].into();
    SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture)?.try_into()
}

fn rules(job: Job) -> Result<Rules> {
    let (is_session, network) = match job {
        Job::Session { network } => (true, network),
        Job::Files { network } => (false, network),
    };
    let uses_network = network != Network::None;
    let unconditional = [COMMON, LEGACY]
        .into_iter()
        .chain(is_session.then_some(SESSION))
        .chain((is_session || uses_network).then_some(SOCKETS))
        .chain(uses_network.then_some(NETWORK))
        .chain((network == Network::ClientAndServer).then_some(SERVER));
    let mut rules: Rules = unconditional.flatten().map(|call| (*call, Vec::new())).collect();
    rules.insert(SYS_clone3, Vec::new());
    rules.insert(SYS_clone, vec![rule([masked(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64)])?]);
    for call in [SYS_mmap, SYS_mprotect] {
        rules.insert(call, vec![rule([masked(2, libc::PROT_EXEC as u64, 0)])?]);
    }
    rules.insert(SYS_ioctl, vec![rule([differs(1, TIOCSTI), differs(1, TIOCLINUX)])?]);
    let own_thread = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_TIMERSLACK];
    rules.insert(SYS_prctl, any_of(0, &own_thread.map(|option| option as u64))?);
    let mut families = Vec::new();
    if is_session {
        rules.insert(SYS_bpf, any_of(0, BPF_COMMANDS)?);
        families.push(libc::AF_UNIX as u64);
    }
    if uses_network {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|family| family as u64));
    }
    if !families.is_empty() {
        let mut sockets = any_of(0, &families)?;
        if is_session {
            // The kernel reports the other ends of UNIX sockets.
            sockets.push(rule([equals(0, libc::AF_NETLINK as u64), equals(2, NETLINK_SOCK_DIAG)])?);
        }
        rules.insert(SYS_socket, sockets);
    }
    Ok(rules)
}

fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>> {
    values.iter().map(|value| rule([equals(argument, *value)])).collect()
}

fn equals(argument: u8, value: u64) -> Result<SeccompCondition> {
    compare(argument, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition> {
    compare(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn differs(argument: u8, value: u64) -> Result<SeccompCondition> {
    compare(argument, SeccompCmpOp::Ne, value)
}

fn compare(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, operator, value)
}

fn rule<const N: usize>(conditions: [Result<SeccompCondition>; N]) -> Result<SeccompRule> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_can_be_compiled() {
        for network in [Network::None, Network::Client, Network::ClientAndServer] {
            for job in [Job::Session { network }, Job::Files { network }] {
                assert!(programs(job).is_ok(), "{job:?}");
            }
        }
    }

    #[test]
    fn no_job_has_a_call_that_starts_a_program_or_leaves_the_sandbox() {
        let never = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_io_uring_setup,
            libc::SYS_mount,
            libc::SYS_ptrace,
            libc::SYS_seccomp,
            libc::SYS_setns,
            libc::SYS_unshare,
        ];
        let network = Network::ClientAndServer;
        for job in [Job::Session { network }, Job::Files { network }] {
            let rules = rules(job).unwrap();
            assert!(never.iter().all(|call| !rules.contains_key(call)), "{job:?}");
        }
    }
}
