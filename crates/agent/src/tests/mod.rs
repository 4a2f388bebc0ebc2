//! What the tests of several encoders share.

pub(crate) mod wire;
