//! Tests of finding pods, in the files of a node and with the cgroups of all classes of pods and both cgroup drivers.

use super::{super::runtime_files::tests::TestNode, *};
use crate::cgroup::Version;

const UID: &str = "0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e";

/// A running container: its id, its names and its cgroup.
struct Running {
    id: String,
    names: ContainerNames,
    found: FoundContainer,
}

fn id(number: u32) -> String {
    format!("{number:064x}")
}

fn running(
    number: u32,
    (namespace, pod, container): (&str, &str, Option<&str>),
    cgroup: Option<&str>,
) -> Running {
    let id = id(number);
    let names = ContainerNames {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        pod_uid: UID.to_owned(),
        container: container.map(str::to_owned),
        image: None,
    };
    let directory = cgroup.map(|path| path.replace("UID", UID).replace("ID", &id).into());
    let cgroup = directory.map(|directory| Cgroup { directory, version: Version::V2 });
    Running { id, names, found: FoundContainer { cgroup, pids: [number, number + 100].map(Pid).to_vec() } }
}

/// Finds a pod on a node with these containers.
fn find(
    containers: Vec<Running>,
    name: &str,
    namespace: Option<&str>,
    container: Option<&str>,
) -> Result<Pod, FindError> {
    let node = TestNode::new();
    let mut found = FoundContainers::new();
    for container in containers {
        node.add(&container.id, &container.names);
        found.insert(container.id, container.found);
    }
    let selector = PodSelector {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        container: container.map(str::to_owned),
    };
    Pods::of(found, &node.files()).find(&selector)
}

/// Sandbox and two containers of a pod.
fn pod(number: u32, namespace: &str, name: &str, cgroup: Option<&str>) -> Vec<Running> {
    let containers = [None, Some("app"), Some("proxy")];
    let running = |(index, container)| running(number + index, (namespace, name, container), cgroup);
    (0..).zip(containers).map(running).collect()
}

#[test]
fn a_pod_is_its_cgroup_in_every_class_and_cgroup_driver() {
    let slice = UID.replace('-', "_");
    for parent in [
        format!("/sys/fs/cgroup/kubepods/pod{UID}"),
        format!("/sys/fs/cgroup/kubepods/burstable/pod{UID}"),
        format!("/sys/fs/cgroup/kubepods/besteffort/pod{UID}"),
        format!("/sys/fs/cgroup/kubepods.slice/kubepods-pod{slice}.slice"),
        format!("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice"),
        format!(
            "/sys/fs/cgroup/cpu/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice"
        ),
    ] {
        for child in ["ID", "cri-containerd-ID.scope", "crio-ID.scope", "docker-ID.scope"] {
            let path = format!("{parent}/{child}");
            let found = find(pod(1, "shop", "web-0", Some(&path)), "web-0", Some("shop"), None).unwrap();
            assert_eq!((&*found.namespace, &*found.name, found.container), ("shop", "web-0", None));
            let cgroup = Cgroup { directory: parent.clone().into(), version: Version::V2 };
            assert_eq!(found.scope, ContainerScope::Cgroup(cgroup), "{path}");

            let found = find(pod(1, "shop", "web-0", Some(&path)), "web-0", None, Some("app")).unwrap();
            let directory = path.replace("ID", &id(2)).into();
            let cgroup = Cgroup { directory, version: Version::V2 };
            assert_eq!(found.scope, ContainerScope::Cgroup(cgroup), "{path}");
        }
    }
}

#[test]
fn a_cgroup_that_is_not_of_the_pod_alone_does_not_select_it() {
    for path in [
        "/sys/fs/cgroup/system.slice/containerd.service/kubepods-besteffort-podUID.slice:cri-containerd:ID",
        "/sys/fs/cgroup/kubepods/besteffort/pod1/ID",
        "/sys/fs/cgroup/k8s.io/ID",
        "/ID",
    ] {
        let found = find(pod(1, "shop", "web-0", Some(path)), "web-0", None, None).unwrap();
        assert_eq!(found.scope, ContainerScope::Processes([2, 3, 102, 103].map(Pid).to_vec()), "{path}");
    }
    assert!(!is_cgroup_of_pod("pod", "") && !is_cgroup_of_pod("-pod.slice", ""));
}

#[test]
fn without_visible_cgroups_the_processes_of_the_containers_are_selected() {
    let found = find(pod(1, "shop", "web-0", None), "web-0", None, None).unwrap();
    assert_eq!(found.scope, ContainerScope::Processes([2, 3, 102, 103].map(Pid).to_vec()));
    let found = find(pod(1, "shop", "web-0", None), "web-0", None, Some("proxy")).unwrap();
    assert_eq!(found.scope, ContainerScope::Processes(vec![Pid(3), Pid(103)]));
    let sandbox = vec![running(1, ("shop", "web-0", None), None)];
    let found = find(sandbox, "web-0", None, None).unwrap();
    assert_eq!(found.scope, ContainerScope::Processes(vec![Pid(1), Pid(101)]));
}

#[test]
fn a_name_is_preferred_to_a_prefix() {
    let pods =
        || [pod(1, "shop", "web", None), pod(11, "shop", "web-0", None)].into_iter().flatten().collect();
    assert_eq!(find(pods(), "web", None, None).unwrap().name, "web");
    assert_eq!(find(pods(), "web-", None, None).unwrap().name, "web-0");
}

#[test]
fn names_that_match_several_pods_are_errors_that_list_them() {
    let pods = || {
        let pods = [("shop", "web-1"), ("shop", "web-2"), ("test", "web-1")];
        let pods = (0..).zip(pods).map(|(number, (namespace, name))| pod(10 * number, namespace, name, None));
        pods.flatten().collect::<Vec<_>>()
    };
    let error = find(pods(), "web", None, None).unwrap_err();
    assert!(matches!(error, FindError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("shop/web-1, shop/web-2, test/web-1"), "{error}");
    let error = find(pods(), "web-1", None, None).unwrap_err();
    assert!(error.to_string().ends_with("shop/web-1, test/web-1"), "{error}");
    assert_eq!(find(pods(), "web-1", Some("test"), None).unwrap().namespace, "test");
}

#[test]
fn missing_pods_and_containers_are_errors_that_list_the_others() {
    let pods = || pod(1, "shop", "web-0", None);
    for (name, namespace) in [("db", None), ("web-0", Some("test")), ("", None)] {
        let error = find(pods(), name, namespace, None).unwrap_err();
        assert!(matches!(error, FindError::NotFound(_)), "{error}");
        assert!(error.to_string().ends_with("the pods of this node are shop/web-0"), "{error}");
    }
    let error = find(pods(), "web-0", None, Some("ap")).unwrap_err();
    assert!(matches!(error, FindError::NotFound(_)), "{error}");
    assert!(error.to_string().ends_with("no running container `ap`, but app, proxy"), "{error}");
    assert!(find(Vec::new(), "web-0", None, None).unwrap_err().to_string().contains("hostPID"));
}

#[test]
fn configurations_that_cannot_be_read_are_part_of_the_error() {
    let node = TestNode::new();
    node.write(&format!("/var/lib/docker/containers/{}/config.v2.json", id(1)), "{");
    let found = FoundContainers::from([(id(1), FoundContainer::default())]);
    let selector = PodSelector { name: "web".to_owned(), ..PodSelector::default() };
    let error = Pods::of(found, &node.files()).find(&selector).unwrap_err();
    assert!(error.to_string().contains("1 configurations cannot be read (EOF"), "{error}");
}

#[test]
fn only_the_first_names_are_listed() {
    assert_eq!(list(0..3), "0, 1, 2");
    assert_eq!(list(0..20), "0, 1, 2, 3, 4, 5, 6, 7, 12 more");
}
