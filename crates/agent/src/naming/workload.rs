//! The name of the workload of a pod: the name of the pod without what controllers and the kubelet append.

/// The characters of random suffixes (`rand.String` in `k8s.io/apimachinery/pkg/util/rand`).
const RANDOM_CHARS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Length of a random suffix, and of the longest generated name (`k8s.io/apiserver/pkg/storage/names/generate.go`).
const RANDOM_LEN: usize = 5;
const MAX_GENERATED_LEN: usize = 63;

/// The characters of the hash of a pod template, which are ten decimal digits at most, encoded by `rand.SafeEncodeString`
/// (`ComputeHash` in `pkg/controller/controller_utils.go` of Kubernetes).
const HASH_CHARS: &str = "456789bcdf";

/// Digits of a hash of 32 bits: fewer are as likely as one in 40,000.
const HASH_LEN: std::ops::RangeInclusive<usize> = 6..=10;

/// Digits of the scheduled time of a job of a CronJob: minutes or, before Kubernetes 1.21, seconds since 1970
/// (`getJobName` in `pkg/controller/cronjob`).
const TIME_LEN: std::ops::RangeInclusive<usize> = 8..=10;

/// Most digits of the ordinal of a pod of a StatefulSet, and of the index of a pod of an indexed Job.
const MAX_ORDINAL_LEN: usize = 6;

/// The name of the workload of a pod on a node.
///
/// | pod of a | name | result |
/// |---|---|---|
/// | Deployment | `web-7d4b9c6f5-x2k7p` | `web` |
/// | DaemonSet, ReplicaSet, Job | `web-x2k7p` | `web` |
/// | CronJob | `report-28912345-x2k7p` | `report` |
/// | indexed Job | `train-3-x2k7p` | `train` |
/// | StatefulSet | `db-0` | `db` |
/// | static pod | `etcd-NODE` | `etcd` |
///
/// The names alone are ambiguous: of a DaemonSet `cache-2`, the result is `cache`.
pub(super) fn workload_name<'a>(pod: &'a str, node: &str) -> &'a str {
    without_node(pod, node)
        .or_else(|| without_joined_suffix(pod))
        .or_else(|| without_random_suffix(pod))
        .or_else(|| without_last(pod, is_ordinal))
        .unwrap_or(pod)
}

/// A static pod has the name of its node in lower case (`generatePodName` in `pkg/kubelet/config/common.go`).
fn without_node<'a>(pod: &'a str, node: &str) -> Option<&'a str> {
    let name = pod.strip_suffix(&node.to_ascii_lowercase())?.strip_suffix('-')?;
    Some(name).filter(|name| !name.is_empty())
}

/// A long name is cut before the random suffix is appended, with the hash of the template or a part of it.
fn without_joined_suffix(pod: &str) -> Option<&str> {
    let (cut, random) = pod.split_at_checked(MAX_GENERATED_LEN - RANDOM_LEN)?;
    if !is_random(random) || cut.ends_with('-') {
        return None;
    }
    Some(without_last(cut, is_part_of_hash).unwrap_or(cut))
}

fn without_random_suffix(pod: &str) -> Option<&str> {
    let owner = without_last(pod, is_random)?;
    let of_deployment = without_last(owner, is_hash);
    Some(of_deployment.or_else(|| without_job_suffix(owner)).unwrap_or(owner))
}

fn without_job_suffix(owner: &str) -> Option<&str> {
    without_last(owner, is_time).or_else(|| {
        let job = without_last(owner, is_ordinal)?;
        Some(without_last(job, is_time).unwrap_or(job))
    })
}

fn without_last(name: &str, is_suffix: fn(&str) -> bool) -> Option<&str> {
    let (rest, last) = name.rsplit_once('-')?;
    (!rest.is_empty() && is_suffix(last)).then_some(rest)
}

fn is_random(text: &str) -> bool {
    text.len() == RANDOM_LEN && text.chars().all(|c| RANDOM_CHARS.contains(c))
}

fn is_hash(text: &str) -> bool {
    HASH_LEN.contains(&text.len()) && is_part_of_hash(text)
}

fn is_part_of_hash(text: &str) -> bool {
    text.len() <= *HASH_LEN.end() && text.chars().all(|c| HASH_CHARS.contains(c))
}

fn is_time(text: &str) -> bool {
    TIME_LEN.contains(&text.len()) && is_number(text)
}

fn is_ordinal(text: &str) -> bool {
    (1..=MAX_ORDINAL_LEN).contains(&text.len()) && is_number(text)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(pod: &str) -> &str {
        workload_name(pod, "Node-1")
    }

    #[test]
    fn pods_of_deployments_lose_hash_and_random_suffix() {
        assert_eq!(workload("web-7d4b9c6f5-x2k7p"), "web");
        assert_eq!(workload("coredns-668d6bf9bc-4xw7q"), "coredns");
        // The number belongs to the name of the deployment.
        assert_eq!(workload("shop-web-2-5f4d8b9cc6-zzzzz"), "shop-web-2");
    }

    #[test]
    fn pods_of_daemon_sets_replica_sets_and_jobs_lose_the_random_suffix() {
        assert_eq!(workload("kube-proxy-x2k7p"), "kube-proxy");
        assert_eq!(workload("report-28912345-x2k7p"), "report");
        assert_eq!(workload("report-1734739200-x2k7p"), "report");
        assert_eq!(workload("train-3-x2k7p"), "train");
        assert_eq!(workload("train-28912345-12-x2k7p"), "train");
    }

    #[test]
    fn pods_of_stateful_sets_lose_the_ordinal() {
        assert_eq!(workload("db-0"), "db");
        assert_eq!(workload("web-db-123"), "web-db");
        assert_eq!(workload("build-20240131"), "build-20240131");
    }

    #[test]
    fn static_pods_lose_the_name_of_the_node() {
        assert_eq!(workload("etcd-node-1"), "etcd");
        assert_eq!(workload_name("etcd-ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.ec2.internal"), "etcd");
        assert_eq!(workload_name("etcd-0", ""), "etcd");
        assert_eq!(workload("node-1"), "node");
    }

    #[test]
    fn long_names_are_cut_before_the_random_suffix() {
        let name = "a".repeat(52);
        assert_eq!(workload(&format!("{name}-7d4b9x2k7p")), name);
        let whole = "a".repeat(58);
        assert_eq!(workload(&format!("{whole}x2k7p")), whole);
        // 63 bytes by chance.
        let name = "a".repeat(57);
        assert_eq!(workload(&format!("{name}-x2k7p")), name);
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "web",
            "web-frontend",
            "web-abcde",
            "web-x2k7",
            "redis-master",
            "-x2k7p",
            "-0",
            "-",
            "",
            "\u{e9}-\u{e9}",
        ] {
            assert_eq!(workload(name), name);
        }
        for length in 50..70 {
            let name = "\u{e9}".repeat(length);
            assert_eq!(workload(&name), name);
        }
    }
}
