//! Parses the configurations of containers, as container runtimes write them, for the names that Kubernetes gave.

use serde::Deserialize;

use super::ContainerNames;

/// Longest name: that of a DNS subdomain (RFC 1123), which names of pods are.
const MAX_NAME_BYTES: usize = 253;

/// Longest reference of an image. A longer one is left out.
const MAX_IMAGE_BYTES: usize = 512;

/// The name that the kubelet (with docker) and CRI-O give the sandbox of a pod.
const SANDBOX: &str = "POD";

/// The annotations or labels of a container. containerd's names are from `pkg/cri/annotations` of its sources, the others
/// are the kubelet's labels (`pkg/kubelet/types/labels.go`), which CRI-O and docker keep.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    sandbox_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    sandbox_name: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-uid")]
    sandbox_uid: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    cri_container_name: Option<String>,
    #[serde(rename = "io.kubernetes.cri.image-name")]
    cri_image: Option<String>,
    /// CRI-O's name (`pkg/annotations/annotations.go` of its sources).
    #[serde(rename = "io.kubernetes.cri-o.ImageName")]
    crio_image: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    pod_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod_name: Option<String>,
    #[serde(rename = "io.kubernetes.pod.uid")]
    pod_uid: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    container_name: Option<String>,
}

/// `config.json` of the OCI runtime specification.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeSpecification {
    annotations: Option<Labels>,
}

/// `config.v2.json` of docker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DockerContainer {
    #[serde(rename = "Config")]
    config: Option<DockerConfiguration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DockerConfiguration {
    #[serde(rename = "Labels")]
    labels: Option<Labels>,
    #[serde(rename = "Image")]
    image: Option<String>,
}

/// The names in `config.json` of containerd or CRI-O; `None` where the container is not one of a pod.
pub(super) fn parse_runtime_specification(json: &[u8]) -> serde_json::Result<Option<ContainerNames>> {
    let specification: RuntimeSpecification = serde_json::from_slice(json)?;
    Ok(specification.annotations.and_then(Labels::names))
}

/// The names in `config.v2.json` of docker; `None` where the container is not one of a pod.
pub(super) fn parse_docker(json: &[u8]) -> serde_json::Result<Option<ContainerNames>> {
    let container: DockerContainer = serde_json::from_slice(json)?;
    let Some(DockerConfiguration { labels, image }) = container.config else { return Ok(None) };
    Ok(labels.and_then(|labels| Labels { cri_image: image, ..labels }.names()))
}

/// Parses the same bytes as the configurations of all runtimes. Checks the length of the names.
#[cfg(fuzzing)]
pub fn check_configurations(json: &[u8]) {
    let parsed = [parse_runtime_specification(json), parse_docker(json)];
    for names in parsed.into_iter().flatten().flatten() {
        let ContainerNames { namespace, pod, pod_uid, container, image } = names;
        assert!(image.is_none_or(|image| image.len() <= MAX_IMAGE_BYTES));
        let names = [namespace, pod, pod_uid, container.unwrap_or_default()];
        assert!(names.iter().all(|name| name.len() <= MAX_NAME_BYTES));
    }
}

impl Labels {
    fn names(self) -> Option<ContainerNames> {
        let names = ContainerNames {
            namespace: self.sandbox_namespace.or(self.pod_namespace)?,
            pod: self.sandbox_name.or(self.pod_name)?,
            pod_uid: self.sandbox_uid.or(self.pod_uid).unwrap_or_default(),
            container: self.cri_container_name.or(self.container_name).filter(|name| name != SANDBOX),
            image: self.cri_image.or(self.crio_image).filter(|image| image.len() <= MAX_IMAGE_BYTES),
        };
        let is_name = |name: &String| !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        let is_valid = is_name(&names.namespace)
            && is_name(&names.pod)
            && names.pod_uid.len() <= MAX_NAME_BYTES
            && names.container.as_ref().is_none_or(is_name);
        is_valid.then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(container: Option<&str>) -> ContainerNames {
        ContainerNames {
            namespace: "shop".to_owned(),
            pod: "web-0".to_owned(),
            pod_uid: "0d4b8f4e-52f1".to_owned(),
            container: container.map(str::to_owned),
            image: None,
        }
    }

    #[test]
    fn the_annotations_of_containerd_name_containers_and_sandboxes() {
        let mut annotations = json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "app",
            "io.kubernetes.cri.image-name": "docker.io/library/app:1",
            "io.kubernetes.cri.sandbox-id": "4f1c",
            "io.kubernetes.cri.sandbox-name": "web-0",
            "io.kubernetes.cri.sandbox-namespace": "shop",
            "io.kubernetes.cri.sandbox-uid": "0d4b8f4e-52f1",
        });
        let parse = |annotations: &serde_json::Value| {
            let specification =
                json!({"ociVersion": "1.0.2", "process": {"args": ["a"]}, "annotations": annotations});
            parse_runtime_specification(specification.to_string().as_bytes()).unwrap()
        };
        let image = Some("docker.io/library/app:1".to_owned());
        assert_eq!(parse(&annotations), Some(ContainerNames { image, ..names(Some("app")) }));
        for of_container in ["io.kubernetes.cri.container-name", "io.kubernetes.cri.image-name"] {
            annotations.as_object_mut().unwrap().remove(of_container);
        }
        assert_eq!(parse(&annotations), Some(names(None)));
    }

    #[test]
    fn the_labels_of_the_kubelet_are_annotations_of_cri_o_and_labels_of_docker() {
        for (name, container) in [("app", Some("app")), ("POD", None)] {
            let labels = json!({
                "io.kubernetes.container.name": name,
                "io.kubernetes.pod.name": "web-0",
                "io.kubernetes.pod.namespace": "shop",
                "io.kubernetes.pod.uid": "0d4b8f4e-52f1",
            });
            let of_crio = json!({"annotations": labels}).to_string();
            let of_docker = json!({"Config": {"Labels": labels}, "State": {"Running": true}}).to_string();
            assert_eq!(parse_runtime_specification(of_crio.as_bytes()).unwrap(), Some(names(container)));
            assert_eq!(parse_docker(of_docker.as_bytes()).unwrap(), Some(names(container)));
        }
    }

    #[test]
    fn the_image_is_found_for_every_runtime_and_bounded() {
        let names = json!({"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop"});
        for (image, expected) in [("app:1", Some("app:1")), (&*"x".repeat(MAX_IMAGE_BYTES + 1), None)] {
            let mut of_crio = json!({"annotations": names});
            of_crio["annotations"]["io.kubernetes.cri-o.ImageName"] = json!(image);
            let of_docker = json!({"Config": {"Labels": names, "Image": image}});
            let parsed = [
                parse_runtime_specification(of_crio.to_string().as_bytes()),
                parse_docker(of_docker.to_string().as_bytes()),
            ];
            for names in parsed {
                assert_eq!(names.unwrap().unwrap().image.as_deref(), expected);
            }
        }
    }

    #[test]
    fn other_containers_have_no_names() {
        for json in ["{}", r#"{"annotations": null}"#, r#"{"annotations": {"a": "b"}}"#] {
            assert_eq!(parse_runtime_specification(json.as_bytes()).unwrap(), None, "{json}");
        }
        for json in ["{}", r#"{"Config": null}"#, r#"{"Config": {"Labels": null}}"#] {
            assert_eq!(parse_docker(json.as_bytes()).unwrap(), None, "{json}");
        }
    }

    #[test]
    fn files_that_no_runtime_writes_give_no_names() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for (namespace, pod) in [("", "web"), ("shop", ""), (&*long, "web"), ("shop", &*long)] {
            let annotations =
                json!({"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": namespace});
            let json = json!({"annotations": annotations}).to_string();
            assert_eq!(parse_runtime_specification(json.as_bytes()).unwrap(), None);
        }
        for json in
            ["", "[", "[1]", r#"{"annotations": 1}"#, r#"{"annotations": {"io.kubernetes.pod.name": 1}}"#]
        {
            assert!(parse_runtime_specification(json.as_bytes()).is_err(), "{json}");
        }
    }
}
