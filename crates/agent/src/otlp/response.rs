//! Decodes the response of a backend.

use profiler_profile_formats::printable;
use prost::Message as _;

use super::{
    messages::opentelemetry::proto::collector::profiles::v1development::ExportProfilesServiceResponse, text,
};

/// The part of a backend's message that is kept, bytes.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// A backend's report on profiles that it rejected of a request that it accepted; without rejected profiles, a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialSuccess {
    /// The number of profiles that were rejected. A request is not sent again for them.
    pub rejected_profiles: u64,
    /// The backend's explanation, escaped and at most 1,024 bytes long.
    pub message: String,
}

/// The body of a response is no `ExportProfilesServiceResponse`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to decode the backend's response to OTLP profiles: {reason}: check that the URL is that of an OTLP receiver"
)]
pub struct DecodeError {
    reason: String,
}

/// Decodes the body of a response with a status of success: `ExportProfilesServiceResponse`, without the framing of gRPC.
/// `None`: the whole request was accepted.
///
/// # Errors
///
/// [`DecodeError`] if the body is no such message.
///
/// ```
/// use profiler_agent::otlp::decode_response;
///
/// assert_eq!(decode_response(b""), Ok(None));
/// assert!(decode_response(b"<html>").is_err());
/// ```
pub fn decode_response(body: &[u8]) -> Result<Option<PartialSuccess>, DecodeError> {
    let response = ExportProfilesServiceResponse::decode(body)
        .map_err(|error| DecodeError { reason: error.to_string() })?;
    let Some(partial) = response.partial_success else { return Ok(None) };
    let rejected_profiles = u64::try_from(partial.rejected_profiles).map_err(|_| DecodeError {
        reason: format!("{} rejected profiles, a negative number", partial.rejected_profiles),
    })?;
    let message = printable(text::shortened(&partial.error_message, MAX_MESSAGE_BYTES)).into_owned();
    let is_full_success = rejected_profiles == 0 && message.is_empty();
    Ok((!is_full_success).then_some(PartialSuccess { rejected_profiles, message }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::messages::opentelemetry::proto::collector::profiles::v1development::ExportProfilesPartialSuccess;

    fn response(rejected_profiles: i64, error_message: &str) -> Result<Option<PartialSuccess>, DecodeError> {
        let partial =
            ExportProfilesPartialSuccess { rejected_profiles, error_message: error_message.to_owned() };
        decode_response(&ExportProfilesServiceResponse { partial_success: Some(partial) }.encode_to_vec())
    }

    #[test]
    fn rejected_profiles_and_warnings_are_a_partial_success() {
        let partial = |rejected_profiles, message: &str| {
            Ok(Some(PartialSuccess { rejected_profiles, message: message.to_owned() }))
        };
        assert_eq!(response(3, "too\nold"), partial(3, "too old"));
        assert_eq!(response(0, "slow down"), partial(0, "slow down"));
        assert_eq!(response(0, ""), Ok(None));
        assert_eq!(response(1, &"x".repeat(5_000)).unwrap().unwrap().message.len(), MAX_MESSAGE_BYTES);
    }

    #[test]
    fn what_is_no_response_is_an_error_with_a_remedy() {
        let error = decode_response(b"404 page not found").unwrap_err().to_string();
        assert!(error.contains("check that the URL is that of an OTLP receiver"), "{error}");
        assert!(response(-1, "").unwrap_err().to_string().contains("-1 rejected profiles"));
    }
}
