//! Chooses the user as whom `-- COMMAND` runs: the caller of sudo in place of root.

use std::env;

use anyhow::{Context, Result, bail};
use profiler::{Builder, CommandUser};

use super::{standard_streams::print_message, sudo::parse_id};

/// Sets the user of a command: that of `--user`; else the caller of sudo, if root runs the profiler. A line on standard
/// error names the caller.
pub(super) fn apply(builder: Builder, option: Option<&str>, quiet: bool) -> Result<Builder> {
    let own = rustix::process::geteuid().as_raw();
    let chosen = match option {
        Some(name) => Some(CommandUser::find(name).context("failed to find the user of --user")?),
        None if own == 0 => caller_of_sudo(|name| env::var(name).ok())?,
        None => None,
    };
    let Some(user) = chosen.filter(|user| user.uid() != own) else { return Ok(builder) };
    if own != 0 {
        bail!("only root can run a command as the user `{}`: run it with `sudo`", user.name());
    }
    if option.is_none() && !quiet {
        let name = user.name();
        print_message(&format!(
            "the command runs as `{name}`, the caller of sudo (--user root runs it as root)"
        ));
    }
    Ok(builder.command_user(user))
}

/// The caller of sudo (sudo(8)); `None` without sudo.
fn caller_of_sudo(variable: impl Fn(&str) -> Option<String>) -> Result<Option<CommandUser>> {
    let id = |name| variable(name).map(|text| parse_id(&text).with_context(|| wrong_id(name, &text)));
    let (Some(uid), gid) = (id("SUDO_UID").transpose()?, id("SUDO_GID").transpose()?) else {
        return Ok(None);
    };
    CommandUser::find_by_uid(uid, gid)?.map(Some).with_context(|| {
        format!("SUDO_UID is {uid}, which is not the id of a user: unset it, or choose the user with --user")
    })
}

fn wrong_id(variable: &str, text: &str) -> String {
    format!("{variable} is `{text}`, which is not an id: unset it, or choose the user with --user")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(variables: &[(&str, &str)]) -> Result<Option<CommandUser>> {
        let found = |name: &str| variables.iter().find(|(other, _)| *other == name);
        caller_of_sudo(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_caller_is_a_user_with_the_group_of_the_call() {
        assert_eq!(caller(&[]).unwrap(), None);
        assert_eq!(caller(&[("SUDO_UID", "0")]).unwrap(), Some(CommandUser::find("root").unwrap()));
        let user = caller(&[("SUDO_UID", "0"), ("SUDO_GID", "7")]).unwrap().unwrap();
        assert_eq!(Some(user), CommandUser::find_by_uid(0, Some(7)).unwrap());
    }

    #[test]
    fn a_wrong_variable_is_an_error_that_names_it() {
        for (variables, name) in [
            (&[("SUDO_UID", "x")][..], "SUDO_UID"),
            (&[("SUDO_UID", "3999999999")], "SUDO_UID"),
            (&[("SUDO_UID", "3999999999"), ("SUDO_GID", "0")], "SUDO_UID"),
            (&[("SUDO_UID", "0"), ("SUDO_GID", "4294967295")], "SUDO_GID"),
        ] {
            let error = caller(variables).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains("--user"), "{error}");
        }
    }
}
