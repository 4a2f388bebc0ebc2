//! Tests of the encoder: requests decoded again, by the rules of the specification and of backends.

mod decoded_request;
mod encoding;
mod field_numbers;
mod parca_rules;
mod pyroscope_rules;
mod random_rules;
mod random_windows;
mod specification_rules;
