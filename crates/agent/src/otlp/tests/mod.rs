//! Tests of the encoder: decoded by the crate `opentelemetry-proto`, checked by the rules of the specification and of backends.

mod decoded_request;
mod encoding;
mod parca_rules;
mod pyroscope_rules;
mod random_rules;
mod random_windows;
mod specification_rules;
