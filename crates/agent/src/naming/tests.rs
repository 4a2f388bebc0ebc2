//! Tests which names processes and containers get.

use profiler_profile::{Attribute, Header, KubernetesNames, ProfileBuilder, StackEnd};

use super::{kubelet::tests::answered, text::MAX_VALUE_BYTES, *};

const ID: &str = "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29";

/// A process of a window.
#[derive(Clone, Copy, Default)]
struct TestProcess {
    container: Option<&'static str>,
    /// Namespace, pod and container.
    names: Option<[&'static str; 3]>,
    attributes: &'static [(&'static str, &'static str)],
    samples: u64,
}

fn profile(processes: &[TestProcess]) -> Profile {
    let mut builder = ProfileBuilder::default();
    for (pid, process) in (1..).zip(processes) {
        let id = builder.process(pid, "comm");
        if let Some(container) = process.container {
            builder.set_container(id, container);
        }
        if let Some(names) = process.names {
            let [namespace, pod, container] = names.map(|name| builder.string(name));
            builder.set_kubernetes_names(id, KubernetesNames { namespace, pod, container: Some(container) });
        }
        for (name, value) in process.attributes {
            let [name, value] = [name, value].map(|text| builder.string(text));
            builder.set_attribute(id, Attribute { name, value });
        }
        let thread = builder.thread(id, pid, "comm");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        builder.sample(0, 0, thread, stack, process.samples);
    }
    builder.finish(Header::default())
}

fn naming() -> Naming {
    limited(200)
}

fn limited(max_resources: usize) -> Naming {
    let options = NamingOptions { host: "host-1".to_owned(), node: None, labels: Vec::new(), max_resources };
    Naming::new(options).unwrap()
}

/// The attributes of the resource of each process, without those of the host.
fn named(naming: &mut Naming, processes: &[TestProcess]) -> Vec<String> {
    let window = naming.window(profile(processes));
    let text = |id| {
        let attributes = &window.resources()[window.resource_of(id)].attributes;
        assert_eq!(attributes["host.name"], "host-1");
        let own = attributes.iter().filter(|(name, _)| *name != "host.name");
        own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    window.profile().process_ids().map(text).collect()
}

fn service(processes: &[TestProcess]) -> Vec<String> {
    let window = naming().window(profile(processes));
    let service = |id| window.resources()[window.resource_of(id)].attributes["service.name"].clone();
    window.profile().process_ids().map(service).collect()
}

const POD: TestProcess = TestProcess {
    container: Some(ID),
    names: Some(["shop", "web-7d4b9c6f5-x2k7p", "app"]),
    attributes: &[],
    samples: 1,
};

#[test]
fn a_container_of_a_pod_has_all_its_names() {
    let attributes = &[
        ("k8s.pod.uid", "0d4b8f4e-52f1"),
        ("container.image.name", "docker.io/library/app:1"),
        ("process.executable.name", "app"),
    ];
    let expected = format!(
        "container.id={ID} container.image.name=docker.io/library/app:1 k8s.container.name=app k8s.namespace.name=shop \
         k8s.pod.name=web-7d4b9c6f5-x2k7p k8s.pod.uid=0d4b8f4e-52f1 service.name=web"
    );
    assert_eq!(named(&mut naming(), &[TestProcess { attributes, ..POD }]), [expected]);
}

#[test]
fn all_processes_of_a_container_have_one_resource() {
    // The second one ended before its names were read; the third one has another claim.
    let first = TestProcess { attributes: &[("service.name", "shop-web")], ..POD };
    let second = TestProcess { names: None, ..POD };
    let third = TestProcess { attributes: &[("service.name", "other-claim")], ..POD };
    let named = named(&mut naming(), &[first, second, third]);
    assert!(named[0].ends_with("service.name=shop-web"), "{named:?}");
    assert_eq!(named[1], named[0]);
    assert_eq!(named[2], named[0]);
}

#[test]
fn a_claim_of_a_container_stays_and_names_no_other_container() {
    let mut naming = naming();
    let claims = |claim, container| TestProcess { attributes: claim, container: Some(container), ..POD };
    let windows = [
        [claims(&[("service.name", "first")], "a"), claims(&[], "b")],
        [claims(&[("service.name", "later")], "a"), claims(&[], "b")],
        [claims(&[], "a"), claims(&[("service.name", "first")], "b")],
    ];
    let services: Vec<Vec<_>> = windows
        .iter()
        .map(|window| {
            let named = named(&mut naming, window);
            named.iter().map(|text| text.rsplit_once('=').unwrap().1.to_owned()).collect()
        })
        .collect();
    assert_eq!(services, [["first", "web"], ["first", "web"], ["first", "first"]]);
    let last = named(&mut naming, &windows[2]);
    assert!(last[0].starts_with("container.id=a ") && last[1].starts_with("container.id=b "), "{last:?}");
}

#[test]
fn a_service_gets_its_name_in_this_order() {
    let names = |names, attributes| TestProcess { names, attributes, ..POD };
    let claim = &[("service.name", "claimed"), ("process.executable.name", "program")];
    let program = &[("process.executable.name", "program"), ("systemd.unit", "containerd.service")];
    assert_eq!(service(&[names(POD.names, claim)]), ["claimed"]);
    assert_eq!(service(&[names(POD.names, program)]), ["web"]);
    assert_eq!(service(&[names(Some(["shop", "", "app"]), program)]), ["app"]);
    assert_eq!(service(&[names(None, program)]), ["program"]);
    assert_eq!(service(&[names(None, &[])]), ["4f1c3ab99a0e"]);
}

#[test]
fn labels_and_owners_of_the_kubelet_precede_the_name_of_the_pod() {
    let list = r#"{"items": [
        {"metadata": {"uid": "labelled", "labels": {"app.kubernetes.io/name": "shop-web", "pod-template-hash": "7d4b9c6f5"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-front-7d4b9c6f5", "controller": true}]}},
        {"metadata": {"uid": "run", "ownerReferences": [{"kind": "Job", "name": "report-28912345", "controller": true}]}},
        {"metadata": {"uid": "owned", "ownerReferences": [{"kind": "DaemonSet", "name": "agent-2", "controller": true}]}}
    ]}"#;
    let mut naming = naming().with_kubelet(answered(list));
    let container = |container, attributes| TestProcess { container: Some(container), attributes, ..POD };
    let processes = [
        container("a", &[("k8s.pod.uid", "labelled")]),
        container("b", &[("k8s.pod.uid", "owned")]),
        container("c", &[("k8s.pod.uid", "unknown")]),
        container("d", &[("k8s.pod.uid", "labelled"), ("service.name", "claimed")]),
        TestProcess {
            names: Some(["shop", "report-28912345-x2k7p", "app"]),
            ..container("e", &[("k8s.pod.uid", "run")])
        },
    ];
    let named = named(&mut naming, &processes);
    let ends =
        ["shop-web", "agent-2", "web", "claimed", "report"].map(|service| format!(" service.name={service}"));
    assert!(named.iter().zip(&ends).all(|(text, end)| text.ends_with(end)), "{named:#?}");
    assert!(named[0].contains(" k8s.deployment.name=web-front "), "{named:#?}");
    assert!(named[1].contains(" k8s.daemonset.name=agent-2 "), "{named:#?}");
}

#[test]
fn processes_outside_of_containers_are_units_or_programs() {
    let host = |attributes| TestProcess { attributes, samples: 1, ..TestProcess::default() };
    let processes = [
        host(&[("systemd.unit", "nginx.service"), ("process.executable.name", "nginx")]),
        host(&[("systemd.unit", "nginx.service"), ("process.executable.name", "sh")]),
        host(&[("systemd.unit", "getty@tty1.service")]),
        host(&[("process.executable.name", "bash")]),
        host(&[("process.executable.name", "[kernel]")]),
        host(&[]),
    ];
    let expected = [
        "service.name=nginx",
        "service.name=nginx",
        "service.name=getty",
        "process.executable.name=bash service.name=bash",
        "process.executable.name=[kernel] service.name=[kernel]",
        "process.executable.name=unknown service.name=unknown",
    ];
    assert_eq!(named(&mut naming(), &processes), expected);
}

#[test]
fn a_claim_outside_of_containers_does_not_join_the_service_that_it_names() {
    let host = |attributes| TestProcess { attributes, samples: 1, ..TestProcess::default() };
    let processes = [
        host(&[("systemd.unit", "ssh.service"), ("process.executable.name", "sshd")]),
        host(&[("service.name", "ssh"), ("process.executable.name", "miner")]),
        host(&[("service.name", "ssh")]),
        TestProcess { attributes: &[("service.name", "ssh")], ..POD },
    ];
    let named = named(&mut naming(), &processes);
    assert_eq!(named[0], "service.name=ssh");
    assert_eq!(named[1], "process.executable.name=miner service.name=ssh");
    assert_eq!(named[2], "process.executable.name=unknown service.name=ssh");
    assert!(named[3].starts_with("container.id="), "{named:?}");
}

#[test]
fn hostile_names_are_printable_and_bounded() {
    let long: &'static str = "\u{e9}\u{1b}".repeat(5_000).leak();
    let hostile: &'static [_] = Box::leak(Box::new([
        ("service.name", long),
        ("k8s.pod.uid", "a\nb\0"),
        ("container.image.name", "\u{202e}gnp"),
        ("process.executable.name", "\u{7}"),
    ]));
    let of_container =
        TestProcess { container: Some(long), names: Some([long; 3]), attributes: hostile, samples: 1 };
    let of_host = TestProcess { attributes: hostile, samples: 1, ..TestProcess::default() };
    let window = naming().window(profile(&[of_container, of_host]));
    assert_eq!(window.resources().len(), 2);
    for resource in window.resources() {
        assert!(resource.attributes.len() <= MAX_ATTRIBUTES);
        for (name, value) in &resource.attributes {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.'), "{name}");
            assert!((1..=MAX_VALUE_BYTES).contains(&value.len()), "{name}: {}", value.len());
            assert_eq!(profiler_profile_formats::printable(value), *value);
        }
    }
}

#[test]
fn the_resources_with_the_most_samples_are_kept() {
    let names: Vec<&'static str> = (0..10).map(|number| &*format!("program-{number}").leak()).collect();
    let of_program = |number: usize| {
        let attributes: &'static [_] = Box::leak(Box::new([("process.executable.name", names[number])]));
        TestProcess { attributes, samples: [5, 9, 1, 7, 3, 8, 2, 6, 4, 10][number], ..TestProcess::default() }
    };
    let processes: Vec<_> = (0..10).map(of_program).collect();
    let named = named(&mut limited(4), &processes);
    let kept: Vec<_> = (0..10).filter(|number| named[*number].contains("program-")).collect();
    assert_eq!(kept, [1, 5, 9]);
    assert!(
        (0..10).filter(|number| !kept.contains(number)).all(|number| named[number] == "service.name=other")
    );
    let window = limited(10).window(profile(&processes));
    assert_eq!(window.resources().len(), 10);
    assert_eq!(limited(1).window(profile(&processes)).resources().len(), 1);
}

#[test]
fn labels_do_not_replace_names_and_are_bounded() {
    let labels = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Label>>();
    let options = NamingOptions {
        host: "Node-1".to_owned(),
        node: Some("Node-1".to_owned()),
        labels: labels(&["cluster=eu-1", "service.name=all", "k8s.pod.name=x"]),
        max_resources: 200,
    };
    let static_pod = TestProcess { names: Some(["kube-system", "etcd-node-1", "etcd"]), ..POD };
    let window = Naming::new(options.clone()).unwrap().window(profile(&[static_pod]));
    let attributes = &window.resources()[0].attributes;
    let value = |name: &str| attributes[name].as_str();
    assert_eq!(
        (value("cluster"), value("service.name"), value("k8s.pod.name")),
        ("eu-1", "etcd", "etcd-node-1")
    );
    assert_eq!((value("k8s.node.name"), value("host.name")), ("Node-1", "Node-1"));
    let many = vec!["a=b".parse().unwrap(); MAX_ATTRIBUTES - MAX_OWN_ATTRIBUTES + 1];
    let error = Naming::new(NamingOptions { labels: many, ..options }).unwrap_err();
    assert_eq!(error.to_string(), "17 labels are too many: give at most 16");
}

#[test]
fn the_host_name_is_that_of_the_node_where_it_is_given() {
    let given = NamingOptions::of_node(Some("node-7".to_owned())).unwrap();
    assert_eq!((given.host.as_str(), given.node.as_deref()), ("node-7", Some("node-7")));
    let own = NamingOptions::of_node(None).unwrap();
    assert!(!own.host.is_empty() && own.node.is_none(), "{own:?}");
}
