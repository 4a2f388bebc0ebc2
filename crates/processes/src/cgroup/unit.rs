//! Finds the systemd unit of a process in the path of its cgroup.

use std::path::{Component, Path};

/// The suffix of the units that are services.
const SERVICE_SUFFIX: &str = ".service";

/// The prefix of the units that contain the service managers of users.
const USER_MANAGER_PREFIX: &str = "user@";

/// The outermost service that contains a cgroup; `None` below the service manager of a user. A service or a user to which
/// systemd delegates its cgroup chooses the names inside it, but not those above.
pub(super) fn service_of(path: &Path) -> Option<&str> {
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let is_service = |name: &&str| name.len() > SERVICE_SUFFIX.len() && name.ends_with(SERVICE_SUFFIX);
    names.find(is_service).filter(|name| !name.starts_with(USER_MANAGER_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_service_is_the_unit() {
        let service = |path: &'static str| service_of(Path::new(path));
        assert_eq!(service("/system.slice/ssh.service"), Some("ssh.service"));
        assert_eq!(
            service("/system.slice/system-getty.slice/getty@tty1.service"),
            Some("getty@tty1.service")
        );
        assert_eq!(service("/system.slice/a.service/ssh.service"), Some("a.service"));
        assert_eq!(service("/../../system.slice/cron.service"), Some("cron.service"));
    }

    #[test]
    fn a_user_cannot_choose_the_name_of_a_unit() {
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/ssh.service",
            "/user.slice/user-1000.slice/session-3.scope",
            "/.service",
            "/kubepods/pod1/4f1c3ab99a0e",
            "/",
        ] {
            assert_eq!(service_of(Path::new(path)), None, "{path}");
        }
    }
}
