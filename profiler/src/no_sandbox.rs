//! Confines nothing: the feature `sandbox` is off.

use crate::{error::Result, settings::Settings};

/// No session confines its process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxSettings {}

/// No sandbox.
pub(crate) struct SessionSandbox;

impl SessionSandbox {
    pub(crate) fn new(settings: &Settings) -> Self {
        let SandboxSettings {} = settings.sandbox;
        Self
    }

    pub(crate) fn confines(&self) -> bool {
        false
    }

    pub(crate) fn reduce_rights(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn filter_system_calls(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn describe_limits() -> Option<String> {
    None
}
