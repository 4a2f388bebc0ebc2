//! What all requests of a window share.

use profiler_profile::EventId;

use super::{
    OtlpOptions, SCOPE_VERSION,
    messages::{InstrumentationScope, Resource},
    resource_message, stacks,
    value_kind::{self, ValueKind},
};
use crate::Window;

/// What all requests of a window share.
pub(super) struct SharedParts<'a> {
    pub(super) window: &'a Window,
    pub(super) options: &'a OtlpOptions,
    /// In the order of [`Window::resources`].
    pub(super) resources: Vec<Resource>,
    pub(super) scope: InstrumentationScope,
    pub(super) module_limits: Vec<u64>,
    kinds: Vec<ValueKind>,
}

impl<'a> SharedParts<'a> {
    pub(super) fn new(window: &'a Window, options: &'a OtlpOptions) -> Self {
        let resources = window.resources().iter();
        let scope = InstrumentationScope {
            name: "profiler".to_owned(),
            version: SCOPE_VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        Self {
            window,
            options,
            resources: resources
                .map(|resource| resource_message::of(resource, options.max_resource_attributes))
                .collect(),
            scope,
            module_limits: stacks::module_limits(window.profile()),
            kinds: window.profile().events().map(value_kind::of).collect(),
        }
    }

    /// What the values of an event are.
    pub(super) fn kind(&self, event: EventId) -> &ValueKind {
        &self.kinds[event.index()]
    }
}
