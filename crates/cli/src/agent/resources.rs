//! The resources of processes, and which of them are sent.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use profiler::sandbox;
use profiler_agent::{
    Filter, Resource, Window,
    environment::Environment,
    naming::{Kubelet, KubeletOptions, Label, Naming, NamingOptions},
    selection::selected,
};
use profiler_profile::Profile;

use crate::arguments::AgentArguments;

/// The variable that a DaemonSet sets to the name of the node.
const NODE_NAME: &str = "NODE_NAME";

/// The files of a pod's service account (<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>).
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Names resources and selects them.
#[derive(Debug)]
pub(super) struct Resources {
    naming: Naming,
    selection: Selection,
}

/// The filters.
#[derive(Clone, Debug)]
struct Selection {
    only: Vec<Filter>,
    dropped: Vec<Filter>,
}

impl Resources {
    /// With `is_confined`, the thread that asks the kubelet has the least rights.
    ///
    /// # Errors
    /// A variable has an attribute that is no label, there are too many labels, or the kubelet cannot be asked.
    pub(super) fn new(
        arguments: &AgentArguments,
        environment: &Environment,
        is_confined: bool,
    ) -> Result<Self> {
        let node = std::env::var_os(NODE_NAME).map(|name| name.to_string_lossy().into_owned());
        let node = node.filter(|name| !name.is_empty());
        let of_node = NamingOptions::of_node(node).context("failed to read the name of the host")?;
        let labels = labels(&arguments.label, environment)?;
        let naming = Naming::new(NamingOptions { labels, ..of_node })?;
        let naming = match &arguments.kubelet {
            Some(url) => naming.with_kubelet(start_kubelet(url, is_confined)?),
            None => naming,
        };
        let selection = Selection { only: arguments.only.clone(), dropped: arguments.drop.clone() };
        Ok(Self { naming, selection })
    }

    /// The window of a profile, with the samples of the resources that are sent.
    pub(super) fn window(&mut self, profile: Profile) -> Window {
        let all = self.naming.window(profile);
        let Selection { only, dropped } = &self.selection;
        if only.is_empty() && dropped.is_empty() {
            return all;
        }
        selected(&all, |resource| self.selection.includes(resource), 1)
    }
}

impl Selection {
    fn includes(&self, resource: &Resource) -> bool {
        let matches = |filters: &[Filter]| filters.iter().any(|filter| filter.matches(resource));
        (self.only.is_empty() || matches(&self.only)) && !matches(&self.dropped)
    }
}

fn start_kubelet(url: &str, is_confined: bool) -> Result<Kubelet> {
    let file = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
    let (token_file, ca_file) = (file(TOKEN_FILE), file(CA_FILE));
    let start = || Kubelet::start(KubeletOptions { url: url.to_owned(), token_file, ca_file });
    Ok(if is_confined { sandbox::start_confined(&[], start)?? } else { start()? })
}

/// The labels of the arguments, and the attributes of the variables. Of two with a name, the last one counts.
fn labels(arguments: &[Label], environment: &Environment) -> Result<Vec<Label>> {
    let of_variables = environment.attributes.iter().map(|(name, value)| {
        let label = format!("{name}={value}").parse::<Label>();
        label.context("the environment variable OTEL_RESOURCE_ATTRIBUTES cannot be used")
    });
    of_variables.chain(arguments.iter().cloned().map(Ok)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_one_filter_are_sent_unless_another_drops_them() {
        let filters = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let attributes = [("ns", "shop"), ("app", "cart")];
        let pairs = attributes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shop = Resource { attributes: pairs.collect() };
        for (only, dropped, is_sent) in [
            (&[][..], &[][..], true),
            (&["ns=shop"], &[], true),
            (&["ns=other", "app=cart"], &[], true),
            (&["ns=other"], &[], false),
            (&["ns=shop"], &["app=c*"], false),
            (&[], &["app=web"], true),
        ] {
            let selection = Selection { only: filters(only), dropped: filters(dropped) };
            assert_eq!(selection.includes(&shop), is_sent, "{only:?} {dropped:?}");
        }
    }

    #[test]
    fn labels_come_after_the_attributes_of_variables() {
        let read = |value: &str| {
            let value = value.to_owned();
            Environment::read(|name| (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| value.clone())).unwrap()
        };
        let given: Vec<Label> = vec!["env=prod".parse().unwrap()];
        let expected: Vec<Label> = ["env=test", "env=prod"].map(|text| text.parse().unwrap()).into();
        assert_eq!(labels(&given, &read("env=test")).unwrap(), expected);
        let error = labels(&given, &read("a-b=c")).unwrap_err();
        assert!(error.to_string().contains("OTEL_RESOURCE_ATTRIBUTES"), "{error}");
    }
}
