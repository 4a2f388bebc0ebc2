//! Encodes windows as OTLP profiles (<https://opentelemetry.io/docs/specs/otlp/>, signal `v1development`).
//!
//! A window is one request with one dictionary, one profile for each resource and event, and one sample for each stack and
//! set of attributes. `docs/design/otlp.md` has the decisions and their sources.

mod dictionary;
mod frame_type;
mod messages;
mod options;
mod request;
mod resource_message;
mod rows;
mod shared_parts;
mod stacks;
#[cfg(test)]
mod tests;
mod text;
mod value_kind;

pub use self::options::OtlpOptions;
use self::{
    request::{FinishedRequest, Request},
    shared_parts::SharedParts,
};
use crate::{Encoded, Message, Window};

/// The version of the definitions of `opentelemetry-proto` that the messages have. `v1development` messages change between
/// versions, and a backend with another version accepts a request and shows nothing: the number of `Sample.values` changed in
/// 1.10.
pub const PROTO_VERSION: &str = "1.10.0";

/// The version of the instrumentation scope: that of the profiler, with the version of the definitions as build metadata
/// (<https://semver.org/#spec-item-10>). An attribute of the scope would be a label of each series.
const SCOPE_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+otlp.1.10.0");

/// Attributes of samples.
const THREAD_NAME: &str = "thread.name";
const THREAD_STATE: &str = "thread.state";

/// Encodes a window: one message, or several where it exceeds a limit of the backend.
///
/// The samples of the messages and [`Encoded::too_large`] add up to the samples of the window. Memory is bounded by the size
/// of a request.
///
/// ```
/// use profiler_agent::{Resource, Window, otlp};
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// let window = Window::new(profile, |_, _| Resource::default());
/// assert!(otlp::encode(&window, &otlp::OtlpOptions::default()).messages.is_empty());
/// ```
#[must_use]
pub fn encode(window: &Window, options: &OtlpOptions) -> Encoded {
    let shared = SharedParts::new(window, options);
    let mut encoded = Encoded::default();
    let mut request = Request::new(&shared);
    for row in rows::of(window, options) {
        if (row.samples, row.value) == (0, 0) {
            continue;
        }
        let Some(value) = shared.kind(row.event).sent_value(row.value) else {
            encoded.too_large = encoded.too_large.saturating_add(row.samples);
            continue;
        };
        if request.add(&row, value) {
            continue;
        }
        push(&mut encoded, std::mem::replace(&mut request, Request::new(&shared)).finish(), window);
        if !request.add(&row, value) {
            encoded.too_large = encoded.too_large.saturating_add(row.samples);
            request = Request::new(&shared);
        }
    }
    push(&mut encoded, request.finish(), window);
    encoded
}

fn push(encoded: &mut Encoded, request: Option<FinishedRequest>, window: &Window) {
    let Some(FinishedRequest { samples, body }) = request else { return };
    match body {
        Some(body) => {
            let started_unix_ns = window.profile().header().started_unix_ns;
            encoded.messages.push(Message { started_unix_ns, samples, body });
        }
        None => encoded.too_large = encoded.too_large.saturating_add(samples),
    }
}
