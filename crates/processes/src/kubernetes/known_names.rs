//! Remembers the names of containers, so that the processes of one container read them once.

use std::{collections::HashMap, sync::Arc};

use super::{ContainerNames, runtime_files::RuntimeFiles};
use crate::ProcFs;

/// Containers that are remembered. A node has some hundred.
const MAX_CONTAINERS: usize = 4096;

/// The names of containers by id.
#[derive(Debug)]
pub(crate) struct KnownNames {
    files: RuntimeFiles,
    by_id: HashMap<String, Option<Arc<ContainerNames>>>,
}

impl KnownNames {
    pub(crate) fn of_node(proc: &ProcFs) -> Self {
        Self::new(RuntimeFiles::of_node(proc))
    }

    fn new(files: RuntimeFiles) -> Self {
        Self { files, by_id: HashMap::new() }
    }

    /// The names of a container; `None` where it is not one of a pod, or its names cannot be read.
    pub(crate) fn get(&mut self, id: &str) -> Option<Arc<ContainerNames>> {
        if let Some(known) = self.by_id.get(id) {
            return known.clone();
        }
        let names = self.files.names(id).unwrap_or_else(|error| {
            log::info!("the names of container {id} are unknown: {error}");
            None
        });
        // Those that are still in use are read again.
        if self.by_id.len() == MAX_CONTAINERS {
            self.by_id.clear();
        }
        let names = names.map(Arc::new);
        self.by_id.insert(id.to_owned(), names.clone());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::runtime_files::tests::{ID, TestNode},
        *,
    };

    #[test]
    fn the_names_of_a_container_are_read_once() {
        let node = TestNode::new();
        let names = ContainerNames {
            namespace: "shop".to_owned(),
            pod: "web-0".to_owned(),
            pod_uid: String::new(),
            container: Some("app".to_owned()),
            image: None,
        };
        node.add(ID, &names);
        let mut known = KnownNames::new(node.files());
        assert_eq!(known.get(ID).as_deref(), Some(&names));
        node.add(ID, &ContainerNames { pod: "later".to_owned(), ..names.clone() });
        assert_eq!(known.get(ID).as_deref(), Some(&names));
    }

    #[test]
    fn the_number_of_remembered_containers_is_bounded() {
        let mut known = KnownNames::new(TestNode::new().files());
        for number in 0..2 * MAX_CONTAINERS {
            assert_eq!(known.get(&format!("{number}")), None);
            assert!(known.by_id.len() <= MAX_CONTAINERS);
        }
        assert_eq!(known.by_id.len(), MAX_CONTAINERS);
    }
}
