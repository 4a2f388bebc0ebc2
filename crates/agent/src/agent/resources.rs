//! The resources of processes, and which of them are sent.

use profiler::sandbox;
use profiler_profile::Profile;

use super::error::AgentError;
use crate::{
    Filter, Resource, Window,
    naming::{Kubelet, KubeletOptions, Naming, NamingOptions},
    selection::selected,
};

/// Names resources and selects them.
#[derive(Debug)]
pub(super) struct Resources {
    naming: Naming,
    selection: Selection,
}

/// The filters of resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// If there are any, a resource has to match one of these.
    pub(super) only: Vec<Filter>,
    /// It matches none of these.
    pub(super) except: Vec<Filter>,
}

impl Resources {
    /// Without `naming`, the names are those of a host outside of Kubernetes. With `is_confined`, the thread that asks the kubelet
    /// has the least rights.
    ///
    /// # Errors
    /// There are too many labels, the name of the host cannot be read, or the kubelet cannot be asked.
    pub(super) fn new(
        naming: Option<NamingOptions>,
        kubelet: Option<KubeletOptions>,
        selection: Selection,
        is_confined: bool,
    ) -> Result<Self, AgentError> {
        let options = naming.map_or_else(|| NamingOptions::of_node(None), Ok);
        let naming = Naming::new(options.map_err(AgentError::HostName)?)?;
        let naming = match kubelet {
            Some(options) => naming.with_kubelet(start_kubelet(options, is_confined)?),
            None => naming,
        };
        Ok(Self { naming, selection })
    }

    /// The window of a profile, with the samples of the resources that are sent.
    pub(super) fn window(&mut self, profile: Profile) -> Window {
        let all = self.naming.window(profile);
        if self.selection.includes_all() {
            return all;
        }
        selected(&all, |resource| self.selection.includes(resource))
    }
}

impl Selection {
    fn includes_all(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }

    fn includes(&self, resource: &Resource) -> bool {
        let matches = |filters: &[Filter]| filters.iter().any(|filter| filter.matches(resource));
        (self.only.is_empty() || matches(&self.only)) && !matches(&self.except)
    }
}

fn start_kubelet(options: KubeletOptions, is_confined: bool) -> Result<Kubelet, AgentError> {
    let start = || Kubelet::start(options);
    Ok(if is_confined { sandbox::start_confined(&[], start)?? } else { start()? })
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
        for (only, except, is_sent) in [
            (&[][..], &[][..], true),
            (&["ns=shop"], &[], true),
            (&["ns=other", "app=cart"], &[], true),
            (&["ns=other"], &[], false),
            (&["ns=shop"], &["app=c*"], false),
            (&[], &["app=web"], true),
        ] {
            let selection = Selection { only: filters(only), except: filters(except) };
            assert_eq!(selection.includes(&shop), is_sent, "{only:?} {except:?}");
        }
    }
}
