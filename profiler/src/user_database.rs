//! Looks users up: in `/etc/passwd` and `/etc/group`, and users of other sources (LDAP) with `getent`.
//!
//! Not with getpwnam(3), which loads libraries that a static program may not be able to run.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStringExt,
    process::{Command, Stdio},
};

/// The most bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// An entry of the user database (passwd(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserEntry {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: OsString,
    pub(crate) shell: OsString,
    /// Whether it is in `/etc/passwd`.
    is_local: bool,
}

impl UserEntry {
    /// Finds a user by name.
    pub(crate) fn by_name(name: &str) -> io::Result<Option<Self>> {
        find(name, |entry| entry.name == name)
    }

    /// Finds a user by user id.
    pub(crate) fn by_uid(uid: u32) -> io::Result<Option<Self>> {
        find(&uid.to_string(), |entry| entry.uid == uid)
    }

    /// The groups of the user, with `gid` among them.
    pub(crate) fn groups(&self, gid: u32) -> io::Result<Vec<u32>> {
        let mut groups = if self.is_local {
            groups_in(&read("/etc/group")?, &self.name)
        } else {
            let text = getent("initgroups", &self.name)?;
            text.split(|byte| byte.is_ascii_whitespace()).skip(1).filter_map(number).collect()
        };
        groups.insert(0, gid);
        groups.dedup();
        Ok(groups)
    }

    /// Parses a line: name, password, uid, gid, comment, home and shell.
    fn parse(line: &[u8], is_local: bool) -> Option<Self> {
        let fields: Vec<_> = line.split(|byte| *byte == b':').collect();
        let [name, _password, uid, gid, _comment, home, shell] = fields[..] else { return None };
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_owned());
        Some(Self {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            uid: number(uid)?,
            gid: number(gid)?,
            home: text(home),
            shell: text(shell),
            is_local,
        })
    }
}

fn find(key: &str, is_wanted: impl Fn(&UserEntry) -> bool) -> io::Result<Option<UserEntry>> {
    let find_in = |text: &[u8], is_local| {
        let mut entries = lines(text).filter_map(|line| UserEntry::parse(line, is_local));
        entries.find(&is_wanted)
    };
    match find_in(&read("/etc/passwd")?, true) {
        None => Ok(find_in(&getent("passwd", key)?, false)),
        found => Ok(found),
    }
}

/// The groups with a user among their members (group(5)).
fn groups_in(text: &[u8], user: &str) -> Vec<u32> {
    let has_user = |members: &[u8]| members.split(|byte| *byte == b',').any(|name| name == user.as_bytes());
    let groups = lines(text).filter_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b':').collect();
        let [_name, _password, gid, members] = fields[..] else { return None };
        has_user(members).then(|| number(gid)).flatten()
    });
    groups.collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The content of a file; empty if it does not exist.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(text),
        file => file?.take(MAX_FILE_BYTES).read_to_end(&mut text).map(|_| text),
    }
}

/// What getent(1) prints about a key; empty if it finds nothing, or does not exist.
fn getent(database: &str, key: &str) -> io::Result<Vec<u8>> {
    if key.is_empty() || key.starts_with('-') || key.contains('\0') {
        return Ok(Vec::new());
    }
    let mut command = Command::new("getent");
    match command.args([database, key]).stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        output => Ok(output?.stdout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_by_id() {
        let root = UserEntry::by_uid(0).unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        assert_eq!(UserEntry::by_name("root").unwrap().unwrap(), root);
        assert_eq!(root.groups(7).unwrap()[0], 7);
    }

    #[test]
    fn a_missing_user_is_no_error() {
        for name in ["no-such-user", "", "-s", "a\0b"] {
            assert_eq!(UserEntry::by_name(name).unwrap(), None);
        }
        assert_eq!(UserEntry::by_uid(3_999_999_999).unwrap(), None);
    }

    #[test]
    fn an_entry_has_seven_fields_and_numbers() {
        let entry = UserEntry::parse(b"me:x:1000:100:My Name,,,:/srv/me:/bin/sh", true).unwrap();
        assert_eq!((entry.uid, entry.gid), (1000, 100));
        assert_eq!((entry.home, entry.shell), ("/srv/me".into(), "/bin/sh".into()));
        for line in [&b""[..], b"+::::::", b"me:x:-1:100::/:/", b"me:x:1:2:/:/", b"\xff:x:1:2::/:/"] {
            assert_eq!(UserEntry::parse(line, true), None);
        }
    }

    #[test]
    fn the_groups_of_a_user_are_those_that_list_it() {
        let text = b"root:x:0:\naudio:x:29:other,me\nsudo:x:27:me\nmega:x:5:mega\n+:::\nbad:x:y:me\n";
        assert_eq!(groups_in(text, "me"), [29, 27]);
    }
}
