//! Ids that sudo(8) gives in its variables `SUDO_UID` and `SUDO_GID`.

/// Parses the id of a user or a group. The highest number is no id: setresuid(2) takes it for "no change".
pub(super) fn parse_id(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id != u32::MAX)
}
