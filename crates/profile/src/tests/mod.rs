//! Tests of profiles.

mod readings;
