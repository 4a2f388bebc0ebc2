//! Limits and use of the cgroups of a process, or of a cgroup itself.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use profiler_processes::{ProcFs, cgroup::CgroupMounts};

use crate::rate::Rate;

/// Bytes read of a file of a cgroup. `cpu.stat` has some hundred.
const MAX_FILE_BYTES: u64 = 16 << 10;

const NS_PER_US: u64 = 1_000;

/// A limit of version 1 from which on memory is unlimited: `PAGE_COUNTER_MAX` pages, rounded by the page size
/// (`include/linux/page_counter.h`).
const UNLIMITED_BYTES: u64 = 1 << 62;

/// A cgroup in each hierarchy. In a hybrid setup, a controller is in one of the two versions.
#[derive(Debug)]
pub(crate) struct Cgroups {
    mounts: CgroupMounts,
    place: Option<Place>,
    /// The levels with the `cpu` controller, the cgroup first.
    cpu: Vec<CpuLevel>,
    /// The levels with the `memory` controller.
    memory: Vec<Level>,
    /// The directory of the version 2 cgroup.
    v2: Option<PathBuf>,
}

/// Where a cgroup is in the hierarchies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where a process is, by the text of `/proc/PID/cgroup`.
    OfProcess(Vec<u8>),
    /// At the same path in each.
    Path(PathBuf),
}

/// A cgroup with a controller, or one of its ancestors.
#[derive(Debug)]
struct Level {
    directory: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

#[derive(Debug)]
struct CpuLevel {
    level: Level,
    usage: Rate,
    throttled: Rate,
}

/// What tasks wait for, in pressure stall information.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    Cpu,
    Memory,
    Io,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

impl Cgroups {
    pub(crate) fn new(mounts: CgroupMounts) -> Self {
        Self { mounts, place: None, cpu: Vec::new(), memory: Vec::new(), v2: None }
    }

    /// Sets the place.
    pub(crate) fn enter(&mut self, place: Place) {
        if self.place.as_ref() == Some(&place) {
            return;
        }
        self.cpu = self.levels(&place, "cpu").into_iter().map(CpuLevel::new).collect();
        self.memory = self.levels(&place, "memory");
        self.v2 = self.v2_levels(&place).into_iter().next();
        self.place = Some(place);
    }

    /// The levels with a controller: those of version 1 where it has the controller.
    fn levels(&self, place: &Place, controller: &str) -> Vec<Level> {
        let v1 = match place {
            Place::OfProcess(memberships) => self.mounts.v1_levels(memberships, controller),
            Place::Path(path) => self.mounts.v1_levels_at(path, controller),
        };
        let (version, directories) =
            if v1.is_empty() { (Version::V2, self.v2_levels(place)) } else { (Version::V1, v1) };
        directories.into_iter().map(|directory| Level { directory, version }).collect()
    }

    fn v2_levels(&self, place: &Place) -> Vec<PathBuf> {
        match place {
            Place::OfProcess(memberships) => self.mounts.v2_levels(memberships),
            Place::Path(path) => self.mounts.v2_levels_at(path),
        }
    }

    /// The cgroup itself in the hierarchy with a controller.
    fn level(&self, controller: &str) -> Option<Level> {
        self.levels(self.place.as_ref()?, controller).into_iter().next()
    }

    /// The CPU time of the cgroup, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        used_ns(&self.level("cpuacct")?)
    }

    /// The threads in the cgroup, by the `pids` controller.
    pub(crate) fn threads(&self) -> Option<u64> {
        self.level("pids")?.number("pids.current")
    }

    /// The resident memory of the processes: anonymous pages, and mapped ones of files and shared memory.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let level = self.memory.first()?;
        let keys = match level.version {
            Version::V1 => ["total_rss", "total_mapped_file"],
            Version::V2 => ["anon", "file_mapped"],
        };
        keys.iter().map(|key| level.number_of("memory.stat", key)).sum()
    }

    /// The largest share of a CPU quota that a level uses. `cpu` is the CPU time of the process per time.
    pub(crate) fn cpu_of_quota(&mut self, now_ns: u64, cpu: Option<f64>) -> Option<f64> {
        self.cpu.iter_mut().filter_map(|level| level.share_of_quota(now_ns, cpu)).reduce(f64::max)
    }

    /// The largest time for which a level was throttled, per time.
    pub(crate) fn throttled(&mut self, now_ns: u64) -> Option<f64> {
        self.cpu.iter_mut().filter_map(|level| level.throttled(now_ns)).reduce(f64::max)
    }

    /// The largest share of a memory limit that a level uses.
    pub(crate) fn memory_of_limit(&self) -> Option<f64> {
        self.memory.iter().filter_map(Level::share_of_memory_limit).reduce(f64::max)
    }

    /// The share of the last ten seconds in which tasks of the version 2 cgroup waited for a resource; those of the
    /// machine if there is no such cgroup.
    pub(crate) fn pressure(&self, proc: &ProcFs, resource: Resource) -> Option<f64> {
        let file = format!("{}.pressure", resource.name());
        let of_cgroup = self.v2.as_ref().and_then(|directory| read(&directory.join(file)));
        of_cgroup.map_or_else(|| pressure_of_machine(proc, resource), |text| parse_pressure(&text))
    }
}

/// The share of the last ten seconds in which tasks of the machine waited for a resource.
pub(crate) fn pressure_of_machine(proc: &ProcFs, resource: Resource) -> Option<f64> {
    parse_pressure(&text(proc.open_global(&format!("pressure/{}", resource.name()))).ok()?)
}

impl Level {
    fn read(&self, file: &str) -> Option<String> {
        read(&self.directory.join(file))
    }

    /// The number that is all of a file.
    fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.trim_end().parse().ok()
    }

    /// The number after a key in a file with one key on each line.
    fn number_of(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file)?;
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(name, _)| *name == key)?.1.parse().ok()
    }

    fn share_of_memory_limit(&self) -> Option<f64> {
        let (used, limit) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
            Version::V2 => ("memory.current", "memory.max"),
        };
        // Without a limit, `memory.max` is `max`.
        let limit_bytes = self.number(limit).filter(|bytes| (1..UNLIMITED_BYTES).contains(bytes))?;
        Some(self.number(used)? as f64 / limit_bytes as f64)
    }
}

impl CpuLevel {
    fn new(level: Level) -> Self {
        Self { level, usage: Rate::default(), throttled: Rate::default() }
    }

    fn share_of_quota(&mut self, now_ns: u64, cpu: Option<f64>) -> Option<f64> {
        let quota_cpus = self.quota_cpus()?;
        let used_cpus = match used_ns(&self.level) {
            Some(used_ns) => self.usage.update(now_ns, used_ns),
            None => cpu,
        };
        Some(used_cpus? / quota_cpus)
    }

    /// The quota in CPUs; `None` without a quota.
    fn quota_cpus(&self) -> Option<f64> {
        let (quota_us, period_us): (u64, u64) = match self.level.version {
            // The quota is -1 if there is no limit.
            Version::V1 => (self.level.number("cpu.cfs_quota_us")?, self.level.number("cpu.cfs_period_us")?),
            // The quota is `max` if there is no limit.
            Version::V2 => {
                let text = self.level.read("cpu.max")?;
                let (quota_us, period_us) = text.trim_end().split_once(' ')?;
                (quota_us.parse().ok()?, period_us.parse().ok()?)
            }
        };
        (quota_us > 0 && period_us > 0).then(|| quota_us as f64 / period_us as f64)
    }

    fn throttled(&mut self, now_ns: u64) -> Option<f64> {
        let throttled_ns = match self.level.version {
            Version::V1 => self.level.number_of("cpu.stat", "throttled_time")?,
            Version::V2 => self.level.number_of("cpu.stat", "throttled_usec")?.saturating_mul(NS_PER_US),
        };
        self.throttled.update(now_ns, throttled_ns)
    }
}

/// CPU time of a cgroup; `None` in version 1 if the hierarchy does not have the `cpuacct` controller.
fn used_ns(level: &Level) -> Option<u64> {
    match level.version {
        Version::V1 => level.number("cpuacct.usage"),
        Version::V2 => Some(level.number_of("cpu.stat", "usage_usec")?.saturating_mul(NS_PER_US)),
    }
}

/// Parses `avg10` of `some`, in percent with two decimals, to a fraction.
fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = some.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    Some(average.parse::<f64>().ok()? / 100.0)
}

/// The text of a file; `None` if the kernel or the cgroup does not have it.
fn read(path: &Path) -> Option<String> {
    text(File::open(path)).ok()
}

fn text(file: io::Result<File>) -> io::Result<String> {
    let mut text = String::new();
    file?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
