//! The user as whom a command runs.

use std::{ffi::OsString, io};

use crate::{
    error::{Error, ErrorKind, Result},
    sys::user::Credentials,
    user_database::UserEntry,
};

/// The user as whom a [`Target::Command`](crate::Target::Command) runs, with its groups and its environment variables.
///
/// See [`Builder::command_user`](crate::Builder::command_user).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandUser {
    name: String,
    pub(crate) credentials: Credentials,
    /// `HOME`, `USER`, `LOGNAME` and `SHELL`, as sudo(8) and login(1) set them.
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl CommandUser {
    /// A user by name or by id, with the groups that the user database lists.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if there is no such user, [`Io`](ErrorKind::Io) if the user database
    /// cannot be read.
    pub fn find(name_or_uid: &str) -> Result<Self> {
        let found = match parse_id(name_or_uid) {
            Some(uid) => UserEntry::by_uid(uid),
            None => UserEntry::by_name(name_or_uid),
        };
        let entry = found.map_err(|error| failed(name_or_uid, error))?;
        let entry = entry.ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("there is no user `{name_or_uid}`"))
        })?;
        Self::with_group(&entry, entry.gid)
    }

    /// A user by id, whose primary group is `gid`, else that of the user database. `None` if there is no such user.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the user database cannot be read.
    pub fn find_by_uid(uid: u32, gid: Option<u32>) -> Result<Option<Self>> {
        let entry = UserEntry::by_uid(uid).map_err(|error| failed(&uid.to_string(), error))?;
        entry.map(|entry| Self::with_group(&entry, gid.unwrap_or(entry.gid))).transpose()
    }

    fn with_group(entry: &UserEntry, gid: u32) -> Result<Self> {
        let name = entry.name.clone();
        let groups = entry.groups(gid).map_err(|error| failed(&name, error))?;
        let environment = vec![
            ("HOME", entry.home.clone()),
            ("USER", name.clone().into()),
            ("LOGNAME", name.clone().into()),
            ("SHELL", entry.shell.clone()),
        ];
        Ok(Self { name, credentials: Credentials { uid: entry.uid, gid, groups }, environment })
    }

    /// The name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.credentials.uid
    }
}

/// Parses the id of a user or a group. The highest number is no id: setresuid(2) takes it for "no change".
pub(crate) fn parse_id(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id != u32::MAX)
}

fn failed(user: &str, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("failed to look up the user `{user}`"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_by_id() {
        let root = CommandUser::find("root").unwrap();
        assert_eq!((root.name(), root.uid()), ("root", 0));
        assert_eq!(CommandUser::find("0").unwrap(), root);
        assert!(root.environment.contains(&("USER", "root".into())));
    }

    #[test]
    fn a_missing_user_is_an_error_with_the_name() {
        for name in ["no-such-user", "3999999999", "", "a\0b", "-1"] {
            let error = CommandUser::find(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        assert_eq!(CommandUser::find_by_uid(3_999_999_999, None).unwrap(), None);
    }

    #[test]
    fn ids_are_decimal_numbers_that_system_calls_accept() {
        assert_eq!((parse_id("0"), parse_id("4294967294")), (Some(0), Some(u32::MAX - 1)));
        for text in ["", "-1", "+1", "0x1", " 1", "4294967295", "4294967296"] {
            assert_eq!(parse_id(text), None, "{text}");
        }
    }
}
