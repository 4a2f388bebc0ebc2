//! Reads the Kubernetes manifests in `deploy/`.

use std::fs;

use serde_json::Value;

/// The container `profiler` of a manifest.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    document: Value,
    container: Value,
}

impl Manifest {
    /// Reads a pod manifest with a container `profiler`.
    pub(crate) fn pod(file: &str) -> Self {
        Self::of_pod(read(file))
    }

    /// The pods of a workload, such as a DaemonSet.
    pub(crate) fn of_workload(document: &Value) -> Self {
        Self::of_pod(document["spec"]["template"].clone())
    }

    /// A pod with a container `profiler`.
    pub(crate) fn of_pod(document: Value) -> Self {
        let containers = document["spec"]["containers"].as_array().unwrap();
        let container = containers.iter().find(|container| container["name"] == "profiler").unwrap();
        Self { container: container.clone(), document }
    }

    /// Reads a partial container specification.
    pub(crate) fn partial_container(file: &str) -> Self {
        let document = read(file);
        Self { container: document.clone(), document }
    }

    /// A value of the document at a JSON pointer.
    pub(crate) fn value(&self, pointer: &str) -> &Value {
        self.document.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn image(&self) -> &str {
        self.container["image"].as_str().unwrap()
    }

    /// The arguments with replacements. Panics if a replaced argument does not occur.
    pub(crate) fn arguments(&self, replacements: &[(&str, &str)]) -> Vec<String> {
        let mut words: Vec<String> = serde_json::from_value(self.container["args"].clone()).unwrap();
        for (word, replacement) in replacements {
            let found = words.iter_mut().find(|found| found == word);
            *found.unwrap_or_else(|| panic!("no argument {word}")) = (*replacement).to_owned();
        }
        words
    }

    /// The capabilities that are added after all others are dropped.
    pub(crate) fn capabilities(&self) -> Vec<String> {
        assert_eq!(self.security("/capabilities/drop"), &serde_json::json!(["ALL"]));
        serde_json::from_value(self.security("/capabilities/add").clone()).unwrap()
    }

    /// A value of the security context at a JSON pointer.
    pub(crate) fn security(&self, pointer: &str) -> &Value {
        self.container["securityContext"].pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"))
    }

    /// A value of the container at a JSON pointer.
    pub(crate) fn container(&self, pointer: &str) -> &Value {
        self.container.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {}", self.container))
    }

    pub(crate) fn security_context(&self) -> &Value {
        &self.container["securityContext"]
    }
}

fn read(file: &str) -> Value {
    let path = profiler_tests::file("../deploy").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
