//! Parses the list of pods of a kubelet for labels and owners.

use std::collections::HashMap;

use serde::Deserialize;

use super::super::text;

/// The pods of a node by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Pods {
    by_uid: HashMap<String, Pod>,
}

/// What the kubelet knows of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Pod {
    /// The value of the label `app.kubernetes.io/name`, else of `app`.
    pub(in super::super) service: Option<String>,
    /// The workload that controls it.
    pub(in super::super) owner: Option<Owner>,
}

/// The workload that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Owner {
    /// Its attribute in OpenTelemetry's semantic conventions: `k8s.deployment.name`.
    pub(in super::super) attribute: &'static str,
    /// The value of the attribute.
    pub(in super::super) name: String,
}

impl Pods {
    /// Parses a `v1.PodList` in JSON.
    pub(super) fn parse(json: &[u8]) -> serde_json::Result<Self> {
        let list: PodList = serde_json::from_slice(json)?;
        let pods = list.items.unwrap_or_default().into_iter().filter_map(|PodItem { metadata }| {
            let uid = metadata.uid.clone().filter(|uid| !uid.is_empty())?;
            Some((uid, metadata.pod()))
        });
        Ok(Self { by_uid: pods.collect() })
    }

    pub(in super::super) fn get(&self, uid: &str) -> Option<&Pod> {
        self.by_uid.get(uid)
    }
}

#[derive(Deserialize)]
struct PodList {
    items: Option<Vec<PodItem>>,
}

#[derive(Deserialize)]
struct PodItem {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<String>,
    labels: Option<Labels>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Default, Deserialize)]
struct Labels {
    #[serde(rename = "app.kubernetes.io/name")]
    name: Option<String>,
    app: Option<String>,
    /// The hash at the end of the name of the ReplicaSet of a Deployment.
    #[serde(rename = "pod-template-hash")]
    template_hash: Option<String>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
    controller: Option<bool>,
}

impl Metadata {
    fn pod(self) -> Pod {
        let labels = self.labels.unwrap_or_default();
        let value = |label: &Option<String>| text::value(label.as_deref()?);
        let controller = self
            .owner_references
            .unwrap_or_default()
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        Pod {
            service: value(&labels.name).or_else(|| value(&labels.app)),
            owner: controller.and_then(|owner| owner.named(labels.template_hash.as_deref())),
        }
    }
}

impl OwnerReference {
    fn named(self, template_hash: Option<&str>) -> Option<Owner> {
        let (attribute, name) = match self.kind.as_str() {
            "ReplicaSet" => match deployment(&self.name, template_hash) {
                Some(deployment) => ("k8s.deployment.name", deployment),
                None => ("k8s.replicaset.name", &*self.name),
            },
            "DaemonSet" => ("k8s.daemonset.name", &*self.name),
            "StatefulSet" => ("k8s.statefulset.name", &*self.name),
            "Job" => ("k8s.job.name", &*self.name),
            _ => return None,
        };
        Some(Owner { attribute, name: text::value(name)? })
    }
}

/// The name of the Deployment of a ReplicaSet, which is that of the ReplicaSet without the hash of the template.
fn deployment<'a>(replica_set: &'a str, template_hash: Option<&str>) -> Option<&'a str> {
    let name = replica_set.strip_suffix(template_hash.filter(|hash| !hash.is_empty())?)?;
    name.strip_suffix('-').filter(|name| !name.is_empty())
}

/// Parses a list of pods. Checks the values that become attributes.
#[cfg(fuzzing)]
pub fn check_pod_list(json: &[u8]) {
    let Ok(pods) = Pods::parse(json) else { return };
    for (uid, Pod { service, owner }) in pods.by_uid {
        assert!(!uid.is_empty());
        for value in service.into_iter().chain(owner.map(|owner| owner.name)) {
            assert_eq!(text::value(&value).as_ref(), Some(&value));
            assert!(value.len() <= text::MAX_VALUE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: &serde_json::Value, kind: &str, owner: &str) -> Pod {
        let reference = json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": true});
        let item = json!({
            "metadata": {"name": "x", "uid": "u", "labels": labels, "ownerReferences": [{"kind": "Node", "name": "n"}, reference]},
            "spec": {"containers": []},
        });
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [item]});
        Pods::parse(list.to_string().as_bytes()).unwrap().get("u").unwrap().clone()
    }

    #[test]
    fn a_pod_has_the_name_of_its_label_and_its_owner() {
        let labels =
            json!({"app": "web-app", "app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9c6f5"});
        let pod = pod(&labels, "ReplicaSet", "web-7d4b9c6f5");
        assert_eq!(pod.service.as_deref(), Some("web"));
        assert_eq!(pod.owner, Some(Owner { attribute: "k8s.deployment.name", name: "web".to_owned() }));
    }

    #[test]
    fn each_kind_of_owner_has_an_attribute() {
        let labels = json!({"app": "web-app", "pod-template-hash": "other"});
        for (kind, attribute) in [
            ("ReplicaSet", "k8s.replicaset.name"),
            ("DaemonSet", "k8s.daemonset.name"),
            ("StatefulSet", "k8s.statefulset.name"),
            ("Job", "k8s.job.name"),
        ] {
            let pod = pod(&labels, kind, "name");
            assert_eq!(pod.owner, Some(Owner { attribute, name: "name".to_owned() }));
            assert_eq!(pod.service.as_deref(), Some("web-app"));
        }
        assert_eq!(pod(&json!({}), "Node", "name"), Pod::default());
    }

    #[test]
    fn lists_without_pods_and_other_texts() {
        for json in ["{}", r#"{"items": null}"#, r#"{"items": []}"#, r#"{"items": [{"metadata": {}}]}"#] {
            assert_eq!(Pods::parse(json.as_bytes()).unwrap(), Pods::default(), "{json}");
        }
        for json in ["", "[1]", r#"{"items": [1]}"#, &"[".repeat(100_000)] {
            assert!(Pods::parse(json.as_bytes()).is_err());
        }
    }
}
