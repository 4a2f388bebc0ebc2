//! Finds the process with a name, and describes the candidates where several have it.

use profiler_processes::{NameSearch, NamedProcess, Pid, ProcFs, find_processes_by_name};

use crate::{
    error::{Error, ErrorKind, Result},
    user_database::UserEntry,
};

/// Characters of a container id that are shown, as container runtimes show them.
const SHOWN_ID_CHARS: usize = 12;

/// The id of the only process with a name. A capture that is recorded does not get the command lines of other processes.
pub(super) fn find(name: &str) -> Result<Pid> {
    let search = find_processes_by_name(&ProcFs::live(), name)?;
    match &*search.matching {
        [process] => Ok(process.pid),
        [] => Err(Error::new(ErrorKind::NoSuchTarget, not_found(name, &search))),
        _ => Err(Error::new(ErrorKind::InvalidInput, ambiguous(name, &search))),
    }
}

fn not_found(name: &str, search: &NameSearch) -> String {
    let similar: Vec<_> = search.similar.iter().map(|found| format!("`{found}`")).collect();
    let hint = if similar.is_empty() {
        "a process has the name in `/proc/PID/comm` and the file name of its program; `dotnet App.dll` also has the \
         names `App.dll` and `App`"
            .to_owned()
    } else {
        format!("processes have the similar names {}", similar.join(", "))
    };
    format!("no visible process has the name `{name}`: {hint}")
}

fn ambiguous(name: &str, search: &NameSearch) -> String {
    let mut candidates: Vec<_> = search.matching.iter().map(description).collect();
    if search.count > candidates.len() {
        candidates.push(format!("{} more", search.count - candidates.len()));
    }
    format!(
        "{} processes have the name `{name}`, choose one with `-p PID`: {}",
        search.count,
        candidates.join("; ")
    )
}

/// `12 (user www-data, container 4f1c3ab99a0e, nginx: worker process)`.
fn description(process: &NamedProcess) -> String {
    let NamedProcess { pid, uid, container, command_line } = process;
    let container = container.as_deref().map_or("no container".to_owned(), |id| {
        format!("container {}", id.chars().take(SHOWN_ID_CHARS).collect::<String>())
    });
    format!("{pid} ({}, {container}, `{command_line}`)", user(*uid))
}

/// The user by name; by id where the user database of this machine does not have it, as in a user namespace.
fn user(uid: u32) -> String {
    match UserEntry::by_uid(uid) {
        Ok(Some(entry)) => format!("user {}", entry.name),
        Ok(None) | Err(_) => format!("user id {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use super::*;

    fn process(pid: Pid, container: Option<&str>) -> NamedProcess {
        let container = container.map(str::to_owned);
        NamedProcess { pid, uid: 0, container, command_line: "shop --port 80".to_owned() }
    }

    #[test]
    fn several_processes_are_listed_with_what_distinguishes_them() {
        let matching = vec![process(Pid(7), None), process(Pid(8), Some("4f1c3ab99a0e6b7a1d5d"))];
        let message = ambiguous("shop", &NameSearch { count: 5, matching, ..NameSearch::default() });
        assert_eq!(
            message,
            "5 processes have the name `shop`, choose one with `-p PID`: 7 (user root, no container, `shop --port 80`); \
             8 (user root, container 4f1c3ab99a0e, `shop --port 80`); 3 more"
        );
    }

    #[test]
    fn a_missing_name_is_an_error_with_similar_names() {
        let similar = BTreeSet::from(["Shopping".to_owned(), "shop2".to_owned()]);
        let message = not_found("shop", &NameSearch { similar, ..NameSearch::default() });
        assert!(message.ends_with("similar names `Shopping`, `shop2`"), "{message}");
        assert!(not_found("shop", &NameSearch::default()).contains("/proc/PID/comm"));
    }

    #[test]
    fn the_only_process_with_a_name_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("profiler-test-by-name");
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let start = || Command::new(&program).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut first = start();
        assert_eq!(find("profiler-test-by-name").unwrap(), Pid(first.id()));
        let mut second = start();
        let error = find("profiler-test-by-name").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for child in [&mut first, &mut second] {
            assert!(error.to_string().contains(&format!("{} (user ", child.id())), "{error}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!(find("profiler-test-by-name").unwrap_err().kind(), ErrorKind::NoSuchTarget);
    }
}
