//! Sends what a node did to an existing backend: window by window, with an exact account of every sample.
//!
//! A [`Window`] is the profile of one interval, with a [`Resource`] for each of its processes. An encoder makes
//! [`Message`]s of it, which the delivery sends.

pub mod delivery;
pub mod environment;
mod filter;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod message;
pub mod metrics;
pub mod naming;
pub mod otlp;
pub mod pyroscope;
mod resource;
pub mod selection;
#[cfg(test)]
mod tests;
mod window;

pub use self::{
    filter::{Filter, InvalidFilter},
    message::{Encoded, Message},
    resource::Resource,
    window::Window,
};
