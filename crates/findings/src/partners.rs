//! What threads wait for beyond their processes: the service at the other end of a connection, a child process, the process at the
//! other end of a pipe, or the device of a file.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
};

use profiler_profile::{Finding, FindingKind, Partner, Profile, sum};

use crate::{
    WaitCause, Waits,
    frames::function,
    pattern::matches_any,
    waiting::MIN_UPSTREAM_THREADS,
    weights::{heaviest, percent},
};

/// The most threads whose partners are read.
const MAX_THREADS: usize = 64;

/// The least share of the threads with a known partner that have the same one, percent.
const MIN_SAME_PERCENT: usize = 50;

/// The least share of its time in which a thread waits in one way, percent, for its partner to be read.
const MIN_WAIT_PERCENT: f64 = 50.0;

/// What threads wait for beyond their processes, by thread id, as it was read while they waited.
///
/// ```
/// use profiler_findings::Partners;
/// use profiler_profile::Partner;
///
/// let mut partners = Partners::default();
/// partners.add_service(7, Partner { name: "postgres".to_owned(), process: Some(123) });
/// partners.add_client(8);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Partners {
    services: BTreeMap<u32, Partner>,
    clients: BTreeSet<u32>,
    servers: BTreeSet<u32>,
    devices: BTreeMap<u32, Partner>,
    processes: BTreeMap<u32, Partner>,
    children: BTreeMap<u32, Partner>,
}

impl Partners {
    /// Adds a thread that waits for a service, to which its process has connected.
    pub fn add_service(&mut self, tid: u32, service: Partner) {
        self.services.insert(tid, service);
    }

    /// Adds a thread that waits for a client, whose connection its process has accepted.
    pub fn add_client(&mut self, tid: u32) {
        self.clients.insert(tid);
    }

    /// Adds a thread of a process that waits on behalf of clients: it has accepted a connection for each of its threads that waits for a
    /// service.
    pub fn add_server(&mut self, tid: u32) {
        self.servers.insert(tid);
    }

    /// Adds a thread that waits for a file on a device.
    pub fn add_device(&mut self, tid: u32, device: Partner) {
        self.devices.insert(tid, device);
    }

    /// Adds a thread that waits for the end of a child process, or for a pipe to a child process.
    pub fn add_child(&mut self, tid: u32, child: Partner) {
        self.children.insert(tid, child);
    }

    /// Adds a thread that waits for a pipe whose other end another process has than a child.
    pub fn add_process(&mut self, tid: u32, process: Partner) {
        self.processes.insert(tid, process);
    }

    /// The partners that the findings of a profile have.
    pub(crate) fn of_findings(profile: &Profile) -> Self {
        let mut partners = Self::default();
        let waits = LazyCell::new(|| Waits::of(profile));
        for finding in profile.findings() {
            let Some(partner) = &finding.facts.partner else { continue };
            let (kind, tids) = match finding.kind {
                FindingKind::Disk => (Some(PartnerKind::Device), &finding.facts.selection.threads[..]),
                FindingKind::ChildProcess => (Some(PartnerKind::Child), &finding.facts.selection.threads[..]),
                FindingKind::HeldLock => {
                    let owner = finding.facts.cause_thread.as_slice();
                    let cause = owner.first().and_then(|owner| main_wait(profile, &waits, finding, *owner));
                    (cause.and_then(PartnerKind::of_wait), owner)
                }
                _ => (Some(PartnerKind::Service), &finding.facts.selection.threads[..]),
            };
            if let Some(kind) = kind {
                if kind == PartnerKind::Service {
                    partners.servers.extend(tids);
                }
                partners.known_mut(kind).extend(tids.iter().map(|tid| (*tid, partner.clone())));
            }
        }
        partners
    }

    fn known_mut(&mut self, kind: PartnerKind) -> &mut BTreeMap<u32, Partner> {
        match kind {
            PartnerKind::Service => &mut self.services,
            PartnerKind::Device => &mut self.devices,
            PartnerKind::Process => &mut self.processes,
            PartnerKind::Child => &mut self.children,
        }
    }

    /// What the owner of a lock waits for, by the cause of its wait. Another cause has no partner: the thread can have waited for that
    /// one at the end alone.
    pub(crate) fn of_wait(&self, tid: u32, cause: WaitCause) -> Option<&Partner> {
        match PartnerKind::of_wait(cause)? {
            PartnerKind::Service => self.services.get(&tid),
            PartnerKind::Device => self.devices.get(&tid),
            PartnerKind::Process => self.processes.get(&tid).or_else(|| self.children.get(&tid)),
            PartnerKind::Child => self.children.get(&tid),
        }
    }

    /// The service for which most of these threads wait.
    pub(crate) fn service(&self, tids: &BTreeSet<u32>) -> Option<Partner> {
        let others = tids.intersection(&self.clients).count();
        most_frequent(&self.services, tids, others)
    }

    /// Whether a thread of a server waits for another service.
    pub(crate) fn has_upstream(&self, tid: u32) -> bool {
        self.servers.contains(&tid) && self.services.contains_key(&tid)
    }

    /// Whether most of these threads whose partners are known wait for clients.
    pub(crate) fn are_clients(&self, tids: &BTreeSet<u32>) -> bool {
        let services = tids.iter().filter(|tid| self.services.contains_key(tid)).count();
        tids.intersection(&self.clients).count() > services
    }

    /// The child process for which most of these threads wait.
    pub(crate) fn child(&self, tids: &BTreeSet<u32>) -> Option<Partner> {
        most_frequent(&self.children, tids, 0)
    }

    /// Whether a thread waits for a child process, or for a pipe to one.
    pub(crate) fn has_child(&self, tid: u32) -> bool {
        self.children.contains_key(&tid)
    }

    /// The device for which most of these threads wait.
    pub(crate) fn device(&self, tids: &BTreeSet<u32>) -> Option<Partner> {
        most_frequent(&self.devices, tids, 0)
    }
}

/// What a partner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartnerKind {
    Service,
    Device,
    /// A child process, or another one at a pipe.
    Process,
    Child,
}

impl PartnerKind {
    /// The kind of the partners of waits with this cause. A wait like that of a main loop can be one for a process.
    fn of_wait(cause: WaitCause) -> Option<Self> {
        match cause {
            WaitCause::SocketIo => Some(Self::Service),
            WaitCause::FileIo => Some(Self::Device),
            WaitCause::ChildProcess => Some(Self::Child),
            WaitCause::Pipe | WaitCause::Idle | WaitCause::Other => Some(Self::Process),
            _ => None,
        }
    }
}

/// The cause of most waits of a thread in the time and in the event of a finding.
fn main_wait(profile: &Profile, waits: &Waits, finding: &Finding, tid: u32) -> Option<WaitCause> {
    let event = finding.event?;
    let unit_ns = profile.event(event).unit_ns()?;
    let selection = &finding.facts.selection;
    let of_thread = profile.samples_of(event).filter(|sample| profile.thread(sample.thread).tid == tid);
    let times = of_thread.filter_map(|sample| {
        let end_ns = sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
        let begin_ns = sample.time_ns.max(selection.begin_ns);
        let in_time_ns = end_ns.min(selection.end_ns).saturating_sub(begin_ns);
        Some((waits.cause(sample)?, in_time_ns))
    });
    heaviest(times).map(|(cause, ..)| cause)
}

/// The partner that most of these threads have, which `others` have none of. Processes of one name are one service.
fn most_frequent(known: &BTreeMap<u32, Partner>, tids: &BTreeSet<u32>, others: usize) -> Option<Partner> {
    let mut names = BTreeMap::<&str, (usize, BTreeSet<Option<u32>>)>::new();
    let partners = tids.iter().filter_map(|tid| known.get(tid));
    let mut total = others;
    for partner in partners {
        total += 1;
        let (count, processes) = names.entry(&partner.name).or_default();
        *count += 1;
        processes.insert(partner.process);
    }
    let (name, (count, processes)) = names.into_iter().max_by_key(|(_, (count, _))| *count)?;
    let process = processes.iter().next().copied().flatten().filter(|_| processes.len() == 1);
    (100 * count > MIN_SAME_PERCENT * total).then(|| Partner { name: name.to_owned(), process })
}

/// The threads, with their processes, whose partners would say more about a finding: those that wait for sockets, files and children,
/// and the owners of locks for which others wait; then those that wait for pipes and sockets, which have a finding only with their partners. At most
/// 64, those of findings of more time first.
#[must_use]
pub fn threads_with_unknown_partners(profile: &Profile) -> Vec<(u32, u32)> {
    let processes: BTreeMap<u32, u32> =
        profile.threads().map(|thread| (thread.tid, profile.process(thread.process).pid)).collect();
    let findings = profile.findings().iter().filter(|finding| finding.facts.partner.is_none());
    let tids = findings.flat_map(|finding| match finding.kind {
        FindingKind::SlowDownstream | FindingKind::Disk | FindingKind::ChildProcess => {
            &finding.facts.selection.threads[..]
        }
        FindingKind::HeldLock => finding.facts.cause_thread.as_slice(),
        _ => &[],
    });
    let of_findings: Vec<_> = tids.filter_map(|tid| Some((*processes.get(tid)?, *tid))).collect();
    let mut threads: Vec<_> = of_findings.into_iter().take(MAX_THREADS).collect();
    let with_partner = profile.findings().iter().filter(|finding| finding.facts.partner.is_some());
    let known: BTreeSet<_> = with_partner.flat_map(|finding| &finding.facts.selection.threads).collect();
    for thread in threads_at_descriptors(profile) {
        let is_new = !threads.contains(&thread) && !known.contains(&thread.1);
        if threads.len() < MAX_THREADS && is_new {
            threads.push(thread);
        }
    }
    threads
}

/// The threads, with their processes, that wait for pipes, then those that wait for sockets, for most of their time. A finding on sockets
/// needs several.
fn threads_at_descriptors(profile: &Profile) -> Vec<(u32, u32)> {
    const FUNCTIONS: &[&str] = &[
        "anon_pipe_*",
        "pipe_read",
        "pipe_write",
        "sock_*",
        "tcp_*msg*",
        "unix_stream_*",
        "recv*",
        "*connect",
        "do_sys_poll",
        "poll",
        "__poll*",
        "do_select",
    ];
    if !profile.frames().any(|frame| matches_any(FUNCTIONS, function(profile, frame))) {
        return Vec::new();
    }
    let waits = Waits::of(profile);
    let mut times = BTreeMap::<_, [u64; 3]>::new();
    for sample in profile.samples().iter().filter(|sample| sample.state.is_some()) {
        let thread = profile.thread(sample.thread);
        let [total, at_pipe, at_socket] =
            times.entry((profile.process(thread.process).pid, thread.tid)).or_default();
        sum::add(total, sample.value);
        match waits.cause(sample) {
            Some(WaitCause::Pipe) => sum::add(at_pipe, sample.value),
            Some(WaitCause::SocketIo) => sum::add(at_socket, sample.value),
            Some(WaitCause::Other) if waits.awaits_descriptors(sample) => sum::add(at_socket, sample.value),
            _ => {}
        }
    }
    let most = |index: usize| -> Vec<_> {
        let is_most = |(_, time): &(&_, &[u64; 3])| percent(time[index], time[0]) >= MIN_WAIT_PERCENT;
        times.iter().filter(is_most).map(|(thread, _)| *thread).collect()
    };
    let [pipes, mut sockets] = [most(1), most(2)];
    if sockets.len() < MIN_UPSTREAM_THREADS {
        sockets.clear();
    }
    pipes.into_iter().chain(sockets).collect()
}
