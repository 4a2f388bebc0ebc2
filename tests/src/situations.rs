//! The situations with known causes: what programs do, and the finding that they have, or none. Tests check the findings and the table
//! in `docs/waiting.md`.

use profiler::profile::FindingKind;

/// A program in a situation.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// What it does.
    pub text: &'static str,
    /// The program and its runtime.
    pub program: Program,
    /// The samples that show it.
    pub sampling: Sampling,
    /// The kind of its finding, and texts of its evidence; `None` for a program without a problem.
    pub finding: Option<(FindingKind, &'static [&'static str])>,
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// A program in C, with its arguments behind the time after which it ends.
    C(&'static str, &'static [&'static str]),
    /// A mode of the .NET workload.
    Dotnet(&'static str),
    /// A program in Python, by its source file, with its arguments behind the time after which it ends.
    Python(&'static str, &'static [&'static str]),
    /// A program in Java, by its source file.
    Java(&'static str),
}

impl Program {
    /// The runtime, as documents name it.
    #[must_use]
    pub fn runtime(self) -> &'static str {
        match self {
            Self::C(..) => "C",
            Self::Dotnet(_) => ".NET 9",
            Self::Python(..) => "Python",
            Self::Java(_) => "Java",
        }
    }
}

/// How a program is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Waits, for the time in which each takes turns.
    Waits,
    /// Waits, for longer than a lock is held.
    LongWaits,
    /// CPUs.
    Cpus,
}

impl Situation {
    /// Its row in the table of documents.
    #[must_use]
    pub fn row(&self) -> String {
        let finding = self.finding.map_or("none", |(kind, _)| kind.name());
        format!("| {} | {} | {finding} |", self.text, self.program.runtime())
    }
}

const fn of_c(
    text: &'static str,
    (program, arguments): (&'static str, &'static [&'static str]),
    sampling: Sampling,
    finding: Option<(FindingKind, &'static [&'static str])>,
) -> Situation {
    Situation { text, program: Program::C(program, arguments), sampling, finding }
}

const fn of_dotnet(
    text: &'static str,
    mode: &'static str,
    sampling: Sampling,
    finding: (FindingKind, &'static [&'static str]),
) -> Situation {
    Situation { text, program: Program::Dotnet(mode), sampling, finding: Some(finding) }
}

/// Texts of evidence about threads that wait for the database of the workload.
const BELOW_CLIENT: &str = " wait for sockets below PQexec (";
const FOR_DATABASE: &str = "; at the end for slow_database (process ";

/// The same of an interpreter without symbols.
const AT_SOCKETS: &str = " wait for sockets (";
const FOR_SERVICE: &str = "; at the end for slow_service (process ";

/// Programs whose threads wait for other processes, or for those of their own.
pub const SERVICES: [Situation; 14] = [
    of_c(
        "4 processes with one thread each wait for a slow database",
        ("services", &["calls", "4", "1"]),
        Sampling::Waits,
        Some((FindingKind::SlowDownstream, &["4 processes (shop): ", BELOW_CLIENT, FOR_DATABASE])),
    ),
    of_c(
        "3 processes with 2 threads each wait for a slow database",
        ("services", &["calls", "3", "2"]),
        Sampling::Waits,
        Some((FindingKind::SlowDownstream, &["3 processes (shop): ", BELOW_CLIENT, FOR_DATABASE])),
    ),
    of_c(
        "4 processes with one thread each wait for a slow database behind a UNIX socket",
        ("services", &["calls_local", "4", "1"]),
        Sampling::Waits,
        Some((FindingKind::SlowDownstream, &["4 processes (shop): ", BELOW_CLIENT, FOR_DATABASE])),
    ),
    Situation {
        text: "4 processes of a server wait for a slow service",
        program: Program::Python("upstream.py", &["processes", "4"]),
        sampling: Sampling::Waits,
        finding: Some((
            FindingKind::SlowDownstream,
            &["4 processes (python3): 4.0 of 4 threads ", AT_SOCKETS, FOR_SERVICE],
        )),
    },
    Situation {
        text: "8 threads of a server wait for a slow service",
        program: Program::Python("upstream.py", &["threads", "8"]),
        sampling: Sampling::Waits,
        finding: Some((
            FindingKind::SlowDownstream,
            &["(python3): 8.0 of 8 threads ", AT_SOCKETS, FOR_SERVICE],
        )),
    },
    Situation {
        text: "8 threads wait for a message of a queue, in a program that a client examines",
        program: Program::Python("upstream.py", &["consumers", "8"]),
        sampling: Sampling::Waits,
        finding: None,
    },
    of_c(
        "3 processes with 2 threads each wait for requests of their clients",
        ("services", &["serves", "3", "2"]),
        Sampling::Waits,
        None,
    ),
    of_c(
        "in each of 3 processes, 4 threads take turns at a lock",
        ("services", &["queues", "3", "4"]),
        Sampling::Waits,
        Some((
            FindingKind::LockConvoy,
            &["3 processes (shop), most in process ", " wait for the lock in append ("],
        )),
    ),
    of_c(
        "in each of 4 processes, 2 threads take turns at a lock",
        ("services", &["queues", "4", "2"]),
        Sampling::Waits,
        None,
    ),
    of_c(
        "4 threads of a server start a process for each request, and wait for its end",
        ("requests", &["converts"]),
        Sampling::Waits,
        Some((
            FindingKind::ChildProcess,
            &[" wait for child processes below convert (", "; at the end for converter"],
        )),
    ),
    of_c(
        "4 threads of a server read what a process for each request writes",
        ("requests", &["reads"]),
        Sampling::Waits,
        Some((
            FindingKind::ChildProcess,
            &[" wait for child processes below convert (", "; at the end for converter"],
        )),
    ),
    of_c(
        "4 threads of a server read the output of a command for each request, by popen",
        ("requests", &["popens"]),
        Sampling::Waits,
        Some((
            FindingKind::ChildProcess,
            &[" wait for child processes below read_output (", "; at the end for sleep"],
        )),
    ),
    of_c(
        "4 threads of a server each wait for a process that does not end",
        ("requests", &["supervises"]),
        Sampling::Waits,
        None,
    ),
    of_c(
        "4 threads ask a name server that does not answer",
        ("requests", &["lookups"]),
        Sampling::Waits,
        Some((
            FindingKind::SlowDownstream,
            &[
                " wait for the addresses of hosts below connect_to_store (",
                "; at the end for name_server (process ",
            ],
        )),
    ),
];

/// Single processes.
pub const PROCESSES: [Situation; 24] = [
    of_c(
        "8 threads take turns at a lock",
        ("convoy", &[]),
        Sampling::Waits,
        Some((FindingKind::LockConvoy, &[" wait for the lock in append ("])),
    ),
    of_c("8 threads have a lock each", ("convoy", &["apart"]), Sampling::Waits, None),
    of_c(
        "8 threads spin until a lock is free",
        ("convoy", &["spin"]),
        Sampling::Cpus,
        Some((FindingKind::Spinning, &[" below append_spinning"])),
    ),
    of_c(
        "4 threads wait for the lock of a thread that computes",
        ("mutexes", &["computes"]),
        Sampling::LongWaits,
        Some((FindingKind::HeldLock, &["; the owner is in compute ("])),
    ),
    of_c(
        "4 threads wait for the lock of a thread that sleeps",
        ("mutexes", &["sleeps"]),
        Sampling::LongWaits,
        Some((FindingKind::HeldLock, &["; the owner is in rest (sleeps)"])),
    ),
    of_c(
        "4 threads wait for the lock of a thread that waits for a child process",
        ("mutexes", &["runs"]),
        Sampling::LongWaits,
        Some((
            FindingKind::HeldLock,
            &[
                "; the owner is in convert (waits for a child process), thread ",
                "; at the end, it waits for converter (process ",
            ],
        )),
    ),
    of_c(
        "2 threads wait for the locks of each other, and a third one computes",
        ("mutexes", &["deadlock"]),
        Sampling::LongWaits,
        Some((FindingKind::Deadlock, &["; each of these locks is owned by one of these threads"])),
    ),
    of_c(
        "4 threads wait for room in a queue from which one thread takes too little",
        ("requests", &["enqueues"]),
        Sampling::Waits,
        Some((FindingKind::FullQueue, &[" wait for room in a full queue (", ", most below enqueue"])),
    ),
    of_c(
        "4 threads wait for an item of a queue to which one thread adds little",
        ("requests", &["dequeues"]),
        Sampling::Waits,
        None,
    ),
    of_c(
        "3 threads wait at a barrier for one that computes",
        ("requests", &["steps"]),
        Sampling::Waits,
        Some((FindingKind::BarrierSkew, &[" wait at a barrier in step (", "; the slow one is in compute ("])),
    ),
    of_c(
        "4 threads meet at a barrier, and all of them compute before",
        ("requests", &["even_steps"]),
        Sampling::Waits,
        None,
    ),
    of_c(
        "a thread maps, touches and unmaps memory again and again",
        ("teardown", &["map"]),
        Sampling::Cpus,
        Some((FindingKind::PageFaults, &[" % of the CPU time handles page faults"])),
    ),
    of_c("a thread computes", ("shares", &[]), Sampling::Cpus, None),
    Situation {
        text: "6 threads compute, and the interpreter lock lets one at a time",
        program: Program::Python("threads.py", &["computes"]),
        sampling: Sampling::Waits,
        finding: Some((FindingKind::LockConvoy, &[" wait for the global interpreter lock of Python ("])),
    },
    Situation {
        text: "6 threads compute for a millisecond in fifty",
        program: Program::Python("threads.py", &["naps"]),
        sampling: Sampling::Waits,
        finding: None,
    },
    Situation {
        text: "20 threads take turns at a monitor",
        program: Program::Java("Convoy.java"),
        sampling: Sampling::Waits,
        finding: Some((FindingKind::LockConvoy, &[" of 20 threads at a time wait for locks ("])),
    },
    Situation {
        text: "8 threads of a server wait for a slow service",
        program: Program::Java("Upstream.java"),
        sampling: Sampling::Waits,
        finding: Some((FindingKind::SlowDownstream, &["(java): 8.0 of 8 threads ", AT_SOCKETS, FOR_SERVICE])),
    },
    of_dotnet(
        "all workers of the pool wait for tasks that need a worker",
        "starve",
        Sampling::Waits,
        (FindingKind::PoolStarvation, &[" below Workload.Cart.Get (sync over async)"]),
    ),
    of_dotnet(
        "threads take turns at a monitor",
        "convoy",
        Sampling::Waits,
        (FindingKind::LockConvoy, &[" wait for the lock in Workload.Ledger.Add ("]),
    ),
    of_dotnet(
        "threads wait for the monitor of a thread that computes",
        "owner",
        Sampling::LongWaits,
        (FindingKind::HeldLock, &["; the owner is thread ", "), in Workload.Price.Compute ("]),
    ),
    of_dotnet(
        "threads wait for the monitors of each other",
        "deadlock",
        Sampling::LongWaits,
        (FindingKind::Deadlock, &["Workload.Account.Transfer"]),
    ),
    of_dotnet(
        "workers of the pool read the responses of a slow service",
        "downstream",
        Sampling::Waits,
        (FindingKind::SlowDownstream, &[" below Workload.Prices.Fetch"]),
    ),
    of_dotnet(
        "the program collects garbage all the time",
        "collect",
        Sampling::Cpus,
        (FindingKind::GarbageCollection, &[" % of the CPU time collects garbage"]),
    ),
    of_dotnet(
        "the program spins all the time",
        "spin",
        Sampling::Cpus,
        (FindingKind::Spinning, &[" % of the CPU time spins until another thread proceeds"]),
    ),
];
