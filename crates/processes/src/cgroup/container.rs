//! Containers by a prefix of their id, as the runtimes write it into cgroup paths.

use std::collections::BTreeMap;

use super::{
    Cgroup,
    container_id::{MIN_PREFIX_CHARS, matches},
    hierarchy::{Hierarchy, parse_memberships},
    mounted, open, walk,
};
use crate::{FindError, ProcFs};

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The whole id.
    pub id: String,
    pub extent: Extent,
}

/// What belongs to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything in a cgroup, now and later.
    Cgroup(Cgroup),
    /// These processes: their cgroup is not visible from here, as in a sidecar that shares only the pid namespace.
    Processes(Vec<u32>),
}

/// No machine has more processes (`PID_MAX_LIMIT` of `include/linux/threads.h`).
const MAX_PROCESSES: usize = 1 << 22;

/// How many containers an error lists.
const MAX_LISTED: usize = 8;

/// Finds the container whose id begins with `id_prefix`: among the processes that are visible, then among the
/// cgroups. A prefix of less than four characters must be the whole id.
pub fn find_container(proc: &ProcFs, id_prefix: &str) -> Result<Container, FindError> {
    let id_prefix = id_prefix.trim();
    if id_prefix.is_empty() || id_prefix.contains('/') {
        return Err(FindError::Invalid(format!("`{id_prefix}` is no id of a container")));
    }
    let hierarchies = mounted()?;
    let mut found = in_processes(proc, &hierarchies, id_prefix)?;
    if found.is_empty() {
        found = in_cgroups(&hierarchies, id_prefix);
    }
    choose(found, id_prefix)
}

/// Where a container was seen.
#[derive(Debug, Default)]
struct Sighting {
    /// The best directory so far.
    cgroup: Option<Cgroup>,
    pids: Vec<u32>,
}

type Sightings = BTreeMap<String, Sighting>;

fn in_processes(proc: &ProcFs, hierarchies: &[Hierarchy], id_prefix: &str) -> Result<Sightings, FindError> {
    let pids = proc.processes(MAX_PROCESSES).map_err(|error| FindError::Io {
        action: "failed to list the processes in `/proc`".to_owned(),
        source: error,
    })?;
    let mut found = Sightings::new();
    // A process can end while the list is read.
    for (pid, text) in pids.into_iter().filter_map(|pid| Some((pid, proc.read(pid, "cgroup").ok()?))) {
        see_process(&mut found, hierarchies, id_prefix, pid, &text);
    }
    Ok(found)
}

fn see_process(found: &mut Sightings, hierarchies: &[Hierarchy], id_prefix: &str, pid: u32, text: &[u8]) {
    for membership in parse_memberships(text) {
        for (id, path) in matches(&membership.path, id_prefix) {
            let sighting = found.entry(id).or_default();
            if sighting.pids.last() != Some(&pid) {
                sighting.pids.push(pid);
            }
            let of_kind = hierarchies.iter().filter(|hierarchy| hierarchy.kind == membership.kind);
            prefer(&mut sighting.cgroup, of_kind.filter_map(|hierarchy| open(hierarchy, &path)).next());
        }
    }
}

fn in_cgroups(hierarchies: &[Hierarchy], id_prefix: &str) -> Sightings {
    let mut found = Sightings::new();
    for hierarchy in hierarchies {
        for path in walk(&hierarchy.mount_point).filter_map(|directory| hierarchy.path(&directory)) {
            // Each directory is visited itself: only its own name counts.
            for (id, _) in matches(&path, id_prefix).into_iter().filter(|(_, place)| *place == path) {
                prefer(&mut found.entry(id).or_default().cgroup, open(hierarchy, &path));
            }
        }
    }
    found
}

/// Version 2 before version 1: the kernel filters by it without a walk.
fn prefer(best: &mut Option<Cgroup>, other: Option<Cgroup>) {
    if other.as_ref().is_some_and(|other| best.is_none() || other.version == super::Version::V2) {
        *best = other;
    }
}

fn choose(mut found: Sightings, id_prefix: &str) -> Result<Container, FindError> {
    if let Some(exact) = found.remove(id_prefix) {
        found = Sightings::from([(id_prefix.to_owned(), exact)]);
    }
    if found.len() > 1 {
        return Err(ambiguous(&found, id_prefix));
    }
    let (id, sighting) = found.pop_first().ok_or_else(|| none(id_prefix))?;
    match sighting {
        Sighting { cgroup: Some(cgroup), .. } => Ok(Container { id, extent: Extent::Cgroup(cgroup) }),
        Sighting { pids, .. } if !pids.is_empty() => Ok(Container { id, extent: Extent::Processes(pids) }),
        _ => Err(none(id_prefix)),
    }
}

fn ambiguous(found: &Sightings, id_prefix: &str) -> FindError {
    let mut ids = found.keys().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if found.len() > MAX_LISTED {
        ids.push_str(", ...");
    }
    let message = format!("{} containers have an id that begins with `{id_prefix}`: {ids}", found.len());
    FindError::Invalid(message)
}

fn none(id_prefix: &str) -> FindError {
    let whole = if id_prefix.chars().count() < MIN_PREFIX_CHARS {
        format!("is `{id_prefix}` (a prefix needs {MIN_PREFIX_CHARS} characters)")
    } else {
        format!("begins with `{id_prefix}`")
    };
    let message = format!(
        "no container has an id that {whole}: looked through `/proc/PID/cgroup` of the visible processes and \
         through the mounted cgroup hierarchies; `docker ps --no-trunc` or `crictl ps --no-trunc` shows ids, names \
         of containers do not stand in their cgroups"
    );
    FindError::NotFound(message)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Machine, *};
    use crate::cgroup::Version;

    const ID: &str = "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29";

    #[test]
    fn the_cgroup_is_the_one_that_a_process_is_in() {
        let machine = Machine::hybrid();
        let v1 = machine.cgroup(&format!("cpu,cpuacct/docker/{ID}"), "7\n");
        let text = format!("4:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n");
        let mut found = Sightings::new();
        see_process(&mut found, &machine.hierarchies, "4f1c", 7, text.as_bytes());
        let container = choose(found, "4f1c").unwrap();
        let version = Version::V1 { controller: "cpu".to_owned() };
        assert_eq!(container.extent, Extent::Cgroup(Cgroup { directory: v1, version }));
        assert_eq!(container.id, ID);
    }

    #[test]
    fn version_2_is_taken_where_both_are_there() {
        let machine = Machine::hybrid();
        machine.cgroup(&format!("unified/docker/{ID}"), "7\n");
        machine.cgroup(&format!("blkio/docker/{ID}"), "7\n");
        for text in [
            format!("0::/docker/{ID}\n7:blkio:/docker/{ID}\n"),
            format!("7:blkio:/docker/{ID}\n0::/docker/{ID}\n"),
        ] {
            let mut found = Sightings::new();
            see_process(&mut found, &machine.hierarchies, "4f1c", 7, text.as_bytes());
            let Extent::Cgroup(cgroup) = choose(found, "4f1c").unwrap().extent else { panic!("no cgroup") };
            assert_eq!(cgroup.version, Version::V2);
        }
    }

    #[test]
    fn from_a_sidecar_the_processes_are_the_container() {
        let machine = Machine::hybrid();
        let mut found = Sightings::new();
        for (pid, text) in [(1, "0::/\n"), (7, "0::/../ID\n"), (9, "0::/../ID/worker\n")] {
            see_process(&mut found, &machine.hierarchies, "4f1c", pid, text.replace("ID", ID).as_bytes());
        }
        let container = choose(found, "4f1c").unwrap();
        assert_eq!(container, Container { id: ID.to_owned(), extent: Extent::Processes(vec![7, 9]) });
    }

    #[test]
    fn a_container_without_visible_processes_is_found_by_its_directory() {
        let machine = Machine::hybrid();
        let directory = machine.cgroup(&format!("blkio/kubepods/pod1/{ID}"), "");
        machine.cgroup(&format!("blkio/kubepods/pod1/{ID}/child"), "");
        machine.cgroup(&format!("systemd/kubepods/pod1/{ID}"), "");
        let found = in_cgroups(&machine.hierarchies, "4f1c");
        let Extent::Cgroup(cgroup) = choose(found, "4f1c").unwrap().extent else { panic!("no cgroup") };
        assert_eq!(cgroup.directory, directory);
    }

    #[test]
    fn an_ambiguous_prefix_lists_what_it_fits_unless_it_is_one_of_them() {
        let sightings = || {
            ["web-1", "web-10", "web-11"].map(|id| (id.to_owned(), Sighting { cgroup: None, pids: vec![1] }))
        };
        let error = choose(sightings().into(), "web-").unwrap_err();
        assert!(matches!(error, FindError::Invalid(_)), "{error}");
        assert!(error.to_string().contains("web-1, web-10, web-11"), "{error}");
        assert_eq!(choose(sightings().into(), "web-1").unwrap().id, "web-1");
    }

    #[test]
    fn none_says_what_was_searched() {
        let error = find_container(&ProcFs::live(), "no-such-container").unwrap_err();
        assert!(matches!(error, FindError::NotFound(_)), "{error}");
        assert!(error.to_string().contains("/proc/PID/cgroup"), "{error}");
        for bad in ["", " ", "a/b"] {
            assert!(matches!(find_container(&ProcFs::live(), bad).unwrap_err(), FindError::Invalid(_)));
        }
    }
}
