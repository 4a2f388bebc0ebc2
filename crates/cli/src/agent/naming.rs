//! The names and labels of the node that the arguments and the variables select.

use anyhow::{Context as _, Result};
use profiler_agent::{
    environment::Environment,
    naming::{Label, NamingOptions},
};

use crate::arguments::AgentArguments;

/// The variable that a DaemonSet sets to the name of the node.
const NODE_NAME: &str = "NODE_NAME";

/// The names of the node, with the labels of all its resources.
///
/// # Errors
/// A variable has an attribute that is not a valid label, or the name of the host cannot be read.
pub(super) fn naming_options(arguments: &AgentArguments, environment: &Environment) -> Result<NamingOptions> {
    let node = std::env::var_os(NODE_NAME).map(|name| name.to_string_lossy().into_owned());
    let node = node.filter(|name| !name.is_empty());
    let of_node = NamingOptions::of_node(node).context("failed to read the name of the host")?;
    Ok(NamingOptions { labels: labels(&arguments.label, environment)?, ..of_node })
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
