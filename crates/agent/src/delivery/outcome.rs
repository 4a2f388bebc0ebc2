//! Outcomes of a request that the backend responded to.

use std::time::Duration;

/// What a response says about a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The backend has it.
    Delivered {
        /// What the backend remarks.
        warning: Option<String>,
    },
    /// The backend has the message without some of its profiles, and does not say which.
    PartlyRejected {
        /// The number of rejected profiles.
        profiles: u64,
        reason: String,
    },
    /// The backend refuses it, and would refuse it again.
    Rejected(String),
    /// It exceeds the backend's limit of size.
    TooLarge(String),
    /// The backend does not have it, and may accept it later.
    Retry {
        /// How long the backend asks to wait.
        after: Option<Duration>,
        reason: String,
    },
    /// The backend may have it.
    Ambiguous(String),
}
