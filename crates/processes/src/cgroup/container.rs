//! Finds a container by a prefix of its id, in the cgroup paths of processes and in the mounted hierarchies.

use std::collections::BTreeMap;

use super::{
    Cgroup, Version,
    container_id::{MIN_PREFIX_CHARS, matching_containers},
    directories_below,
    hierarchy::{Hierarchy, parse_memberships},
    mounted_hierarchies, open,
};
use crate::{FindError, Pid, ProcFs};

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The whole id.
    pub id: String,
    /// What selects its processes.
    pub scope: ContainerScope,
}

/// What selects the processes of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerScope {
    /// All current and future processes in a cgroup.
    Cgroup(Cgroup),
    /// Processes by id. Their cgroup is not visible, as in a sidecar that shares only the PID namespace.
    Processes(Vec<Pid>),
}

/// The kernel's limit of processes (`PID_MAX_LIMIT` of `include/linux/threads.h`).
const MAX_PROCESSES: usize = 1 << 22;

/// Container ids that an error lists.
const MAX_LISTED_IDS: usize = 8;

/// Finds the container whose id begins with `id_prefix`. It searches the cgroup paths of all visible processes, then the
/// mounted hierarchies. A prefix of less than four characters must be the whole id.
///
/// # Errors
/// When the prefix is malformed, no container matches, several containers match, or `/proc` cannot be read.
pub fn find_container(proc: &ProcFs, id_prefix: &str) -> Result<Container, FindError> {
    let id_prefix = id_prefix.trim();
    if id_prefix.is_empty() || id_prefix.contains('/') {
        return Err(FindError::Invalid(format!("`{id_prefix}` is not the id of a container")));
    }
    let hierarchies = mounted_hierarchies()?;
    let mut found = search_processes(proc, &hierarchies, id_prefix)?;
    if found.is_empty() {
        found = search_hierarchies(&hierarchies, id_prefix);
    }
    choose(found, id_prefix)
}

/// The cgroup and the visible processes of a container, as far as they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundContainer {
    /// The preferred cgroup so far.
    pub(crate) cgroup: Option<Cgroup>,
    /// Its processes by id, in the order in which `/proc` lists them.
    pub(crate) pids: Vec<Pid>,
}

/// Containers by id.
pub(crate) type FoundContainers = BTreeMap<String, FoundContainer>;

/// All containers with a visible process, by their generated ids.
#[cfg(feature = "pods")]
pub(crate) fn running_containers(proc: &ProcFs) -> Result<FoundContainers, FindError> {
    let hierarchies = mounted_hierarchies()?;
    let mut found = FoundContainers::new();
    for (pid, text) in cgroup_texts(proc)? {
        if let Some(id) = super::container_id_of(&text) {
            add_process(&mut found, &hierarchies, &id, pid, &text);
        }
    }
    Ok(found)
}

fn search_processes(
    proc: &ProcFs,
    hierarchies: &[Hierarchy],
    id_prefix: &str,
) -> Result<FoundContainers, FindError> {
    let mut found = FoundContainers::new();
    for (pid, text) in cgroup_texts(proc)? {
        add_process(&mut found, hierarchies, id_prefix, pid, &text);
    }
    Ok(found)
}

/// The ids of all visible processes with the texts of `/proc/PID/cgroup`. A process can end while `/proc` is read.
fn cgroup_texts(proc: &ProcFs) -> Result<impl Iterator<Item = (Pid, Vec<u8>)>, FindError> {
    let pids = proc.processes(MAX_PROCESSES).map_err(|error| FindError::Io {
        action: "failed to list the processes in `/proc`".to_owned(),
        source: error,
    })?;
    Ok(pids.into_iter().filter_map(move |pid| Some((pid, proc.read(pid, "cgroup").ok()?))))
}

fn add_process(
    found: &mut FoundContainers,
    hierarchies: &[Hierarchy],
    id_prefix: &str,
    pid: Pid,
    text: &[u8],
) {
    for membership in parse_memberships(text) {
        for (id, path) in matching_containers(&membership.path, id_prefix) {
            let candidate = found.entry(id).or_default();
            if candidate.pids.last() != Some(&pid) {
                candidate.pids.push(pid);
            }
            let same_kind = hierarchies.iter().filter(|hierarchy| hierarchy.kind == membership.kind);
            prefer(&mut candidate.cgroup, same_kind.filter_map(|hierarchy| open(hierarchy, &path)).next());
        }
    }
}

fn search_hierarchies(hierarchies: &[Hierarchy], id_prefix: &str) -> FoundContainers {
    let mut found = FoundContainers::new();
    for hierarchy in hierarchies {
        for path in
            directories_below(&hierarchy.mount_point).filter_map(|directory| hierarchy.path(&directory))
        {
            // Every directory is visited: matches in parent directories were added before.
            for (id, _) in matching_containers(&path, id_prefix)
                .into_iter()
                .filter(|(_, cgroup_path)| *cgroup_path == path)
            {
                prefer(&mut found.entry(id).or_default().cgroup, open(hierarchy, &path));
            }
        }
    }
    found
}

/// Prefers version 2 to version 1, because the BPF program filters by it in one helper call.
fn prefer(best: &mut Option<Cgroup>, other: Option<Cgroup>) {
    if other.as_ref().is_some_and(|other| best.is_none() || other.version == Version::V2) {
        *best = other;
    }
}

fn choose(mut found: FoundContainers, id_prefix: &str) -> Result<Container, FindError> {
    if let Some(exact) = found.remove(id_prefix) {
        found = FoundContainers::from([(id_prefix.to_owned(), exact)]);
    }
    if found.len() > 1 {
        return Err(ambiguous(&found, id_prefix));
    }
    let (id, candidate) = found.pop_first().ok_or_else(|| not_found(id_prefix))?;
    match candidate {
        FoundContainer { cgroup: Some(cgroup), .. } => {
            Ok(Container { id, scope: ContainerScope::Cgroup(cgroup) })
        }
        FoundContainer { pids, .. } if !pids.is_empty() => {
            Ok(Container { id, scope: ContainerScope::Processes(pids) })
        }
        _ => Err(not_found(id_prefix)),
    }
}

fn ambiguous(found: &FoundContainers, id_prefix: &str) -> FindError {
    let mut ids = found.keys().take(MAX_LISTED_IDS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if found.len() > MAX_LISTED_IDS {
        ids.push_str(", ...");
    }
    let message = format!("{} containers have an id that begins with `{id_prefix}`: {ids}", found.len());
    FindError::Invalid(message)
}

fn not_found(id_prefix: &str) -> FindError {
    let condition = if id_prefix.chars().count() < MIN_PREFIX_CHARS {
        format!("is `{id_prefix}` (a prefix needs {MIN_PREFIX_CHARS} characters)")
    } else {
        format!("begins with `{id_prefix}`")
    };
    let message = format!(
        "no container has an id that {condition}: searched `/proc/PID/cgroup` of the visible processes and the \
         mounted cgroup hierarchies; `docker ps --no-trunc` or `crictl ps --no-trunc` shows ids (cgroup paths do not \
         contain the names of containers)"
    );
    FindError::NotFound(message)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::TestHierarchies, *};

    const ID: &str = "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29";

    #[test]
    fn a_container_is_found_by_the_cgroup_of_a_process() {
        let machine = TestHierarchies::hybrid();
        let v1 = machine.cgroup(&format!("cpu,cpuacct/docker/{ID}"), "7\n");
        let text = format!("4:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n");
        let mut found = FoundContainers::new();
        add_process(&mut found, &machine.hierarchies, "4f1c", Pid(7), text.as_bytes());
        let container = choose(found, "4f1c").unwrap();
        let version = Version::V1 { controller: "cpu".to_owned() };
        assert_eq!(container.scope, ContainerScope::Cgroup(Cgroup { directory: v1, version }));
        assert_eq!(container.id, ID);
    }

    #[test]
    fn version_2_is_preferred_to_version_1() {
        let machine = TestHierarchies::hybrid();
        machine.cgroup(&format!("unified/docker/{ID}"), "7\n");
        machine.cgroup(&format!("blkio/docker/{ID}"), "7\n");
        for text in [
            format!("0::/docker/{ID}\n7:blkio:/docker/{ID}\n"),
            format!("7:blkio:/docker/{ID}\n0::/docker/{ID}\n"),
        ] {
            let mut found = FoundContainers::new();
            add_process(&mut found, &machine.hierarchies, "4f1c", Pid(7), text.as_bytes());
            let ContainerScope::Cgroup(cgroup) = choose(found, "4f1c").unwrap().scope else {
                panic!("no cgroup")
            };
            assert_eq!(cgroup.version, Version::V2);
        }
    }

    #[test]
    fn a_container_outside_of_the_cgroup_namespace_is_found_by_its_processes() {
        let machine = TestHierarchies::hybrid();
        let mut found = FoundContainers::new();
        for (pid, text) in [(1, "0::/\n"), (7, "0::/../ID\n"), (9, "0::/../ID/worker\n")] {
            add_process(
                &mut found,
                &machine.hierarchies,
                "4f1c",
                Pid(pid),
                text.replace("ID", ID).as_bytes(),
            );
        }
        let container = choose(found, "4f1c").unwrap();
        assert_eq!(
            container,
            Container { id: ID.to_owned(), scope: ContainerScope::Processes(vec![Pid(7), Pid(9)]) }
        );
    }

    #[test]
    fn a_container_without_visible_processes_is_found_by_its_directory() {
        let machine = TestHierarchies::hybrid();
        let directory = machine.cgroup(&format!("blkio/kubepods/pod1/{ID}"), "");
        machine.cgroup(&format!("blkio/kubepods/pod1/{ID}/child"), "");
        machine.cgroup(&format!("systemd/kubepods/pod1/{ID}"), "");
        let found = search_hierarchies(&machine.hierarchies, "4f1c");
        let ContainerScope::Cgroup(cgroup) = choose(found, "4f1c").unwrap().scope else {
            panic!("no cgroup")
        };
        assert_eq!(cgroup.directory, directory);
    }

    #[test]
    fn an_ambiguous_prefix_lists_the_candidates_unless_it_is_a_whole_id() {
        let candidates = || {
            ["web-1", "web-10", "web-11"]
                .map(|id| (id.to_owned(), FoundContainer { cgroup: None, pids: vec![Pid(1)] }))
        };
        let error = choose(candidates().into(), "web-").unwrap_err();
        assert!(matches!(error, FindError::Invalid(_)), "{error}");
        assert!(error.to_string().contains("web-1, web-10, web-11"), "{error}");
        assert_eq!(choose(candidates().into(), "web-1").unwrap().id, "web-1");
    }

    #[test]
    fn an_error_lists_the_searched_files() {
        let error = find_container(&ProcFs::live(), "no-such-container").unwrap_err();
        assert!(matches!(error, FindError::NotFound(_)), "{error}");
        assert!(error.to_string().contains("/proc/PID/cgroup"), "{error}");
        for bad in ["", " ", "a/b"] {
            assert!(matches!(find_container(&ProcFs::live(), bad).unwrap_err(), FindError::Invalid(_)));
        }
    }
}
