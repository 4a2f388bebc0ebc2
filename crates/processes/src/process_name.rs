//! Finds processes by name: that of the leader thread, of the started program, or of the assembly that `dotnet` runs.

use std::collections::BTreeSet;

use crate::{FindError, Pid, ProcFs, Status, cgroup};

/// The kernel's limit of processes (`PID_MAX_LIMIT` of `include/linux/threads.h`).
const MAX_PROCESSES: usize = 1 << 22;

/// Processes with the name that are described.
const MAX_DESCRIBED_PROCESSES: usize = 16;

/// Similar names that are returned.
const MAX_SIMILAR_NAMES: usize = 8;

/// Characters of a command line or name that are returned.
const MAX_SHOWN_CHARS: usize = 100;

/// Words of a command line among which the assembly is searched: options of the host `dotnet` precede it.
const MAX_WORDS_BEFORE_ASSEMBLY: usize = 16;

/// A process that was found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedProcess {
    /// Process id in the PID namespace of the profiler.
    pub pid: Pid,
    /// Effective user id.
    pub uid: u32,
    /// Id of its container, when the path of its cgroup contains one.
    pub container: Option<String>,
    /// The beginning of its command line: words separated by blanks, without control characters.
    pub command_line: String,
}

/// The result of a search for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSearch {
    /// The number of processes with the name.
    pub count: usize,
    /// The first 16 of them, by id.
    pub matching: Vec<NamedProcess>,
    /// Up to 8 names of other processes that contain the name, upper and lower case alike.
    pub similar: BTreeSet<String>,
}

/// Finds the processes with a name. The name is compared with `/proc/PID/comm`, with the base name of the first word of the
/// command line, and, where that is `dotnet`, with the base name of the assembly with and without `.dll`. Kernel threads,
/// zombies and the calling process are left out.
///
/// # Errors
/// When the name is empty or a path, or `/proc` cannot be read.
pub fn find_processes_by_name(proc: &ProcFs, name: &str) -> Result<NameSearch, FindError> {
    if name.is_empty() || name.contains('/') {
        let message =
            format!("`{name}` is not the name of a process: give the file name of its program, without `/`");
        return Err(FindError::Invalid(message));
    }
    let mut pids = proc.processes(MAX_PROCESSES).map_err(|error| FindError::Io {
        action: "failed to list the processes in `/proc`".to_owned(),
        source: error,
    })?;
    pids.sort_unstable();
    let own = Pid::own();
    let mut search = NameSearch::default();
    for pid in pids.into_iter().filter(|pid| *pid != own) {
        search.add(proc, pid, name);
    }
    Ok(search)
}

impl NameSearch {
    /// Adds a process if it has the name, or its name if that is similar. A process can end while it is read.
    fn add(&mut self, proc: &ProcFs, pid: Pid, name: &str) {
        let Some(status) = status(proc, pid) else { return };
        if status.kernel_thread || status.living_threads() == 0 {
            return;
        }
        let command_line = proc.read(pid, "cmdline").unwrap_or_default();
        let names = names(&proc.read(pid, "comm").unwrap_or_default(), &command_line);
        if !names.iter().any(|found| found == name) {
            self.add_similar(names, name);
            return;
        }
        self.count += 1;
        if self.matching.len() < MAX_DESCRIBED_PROCESSES {
            let container = proc.read(pid, "cgroup").ok().and_then(|text| cgroup::container_id_of(&text));
            let command_line = printable(&command_line);
            self.matching.push(NamedProcess { pid, uid: status.uid, container, command_line });
        }
    }

    fn add_similar(&mut self, names: Vec<String>, name: &str) {
        let wanted = name.to_lowercase();
        let similar = names.into_iter().find(|found| found.to_lowercase().contains(&wanted));
        if let Some(similar) = similar.filter(|_| self.similar.len() < MAX_SIMILAR_NAMES) {
            self.similar.insert(printable(similar.as_bytes()));
        }
    }
}

fn status(proc: &ProcFs, pid: Pid) -> Option<Status> {
    Status::parse(&String::from_utf8_lossy(&proc.read(pid, "status").ok()?))
}

/// The names of a process, from its `comm` and `cmdline`.
fn names(comm: &[u8], command_line: &[u8]) -> Vec<String> {
    const ASSEMBLY_SUFFIX: &str = ".dll";
    let mut words = command_line.split(|byte| *byte == 0);
    let program = words.next().map(base_name).unwrap_or_default();
    let assembly = words
        .take(MAX_WORDS_BEFORE_ASSEMBLY)
        .map(base_name)
        .find(|word| program == "dotnet" && word.ends_with(ASSEMBLY_SUFFIX));
    let stem = assembly.as_ref().map(|name| name.trim_end_matches(ASSEMBLY_SUFFIX).to_owned());
    let comm = comm.strip_suffix(b"\n").unwrap_or(comm);
    let names = [Some(String::from_utf8_lossy(comm).into_owned()), Some(program), assembly, stem];
    names.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The beginning of a command line, with a blank in place of each control character and of each end of a word.
fn printable(command_line: &[u8]) -> String {
    let end = command_line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text = String::from_utf8_lossy(&command_line[..end]);
    let mut shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut beginning: String = shown.by_ref().take(MAX_SHOWN_CHARS).collect();
    if shown.next().is_some() {
        beginning.push_str("...");
    }
    beginning
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::*;

    fn all_names(comm: &str, words: &[&str]) -> Vec<String> {
        names(format!("{comm}\n").as_bytes(), words.join("\0").as_bytes())
    }

    /// Writes the entries of a process into the copy of a proc file system.
    fn add_process(proc: &Path, pid: u32, status: &str, comm: &str, command_line: &str) {
        let directory = proc.join(pid.to_string());
        fs::create_dir(&directory).unwrap();
        let status = format!("Tgid:\t{pid}\nUid:\t0\t1000\t0\t0\nThreads:\t1\n{status}");
        for (entry, text) in [("status", &*status), ("comm", comm), ("cmdline", command_line)] {
            fs::write(directory.join(entry), text).unwrap();
        }
    }

    #[test]
    fn a_process_has_the_names_of_its_leader_its_program_and_its_assembly() {
        assert_eq!(all_names("nginx", &["nginx: master process /usr/sbin/nginx"]), ["nginx", "nginx"]);
        assert_eq!(
            all_names("Shop.Checkout.W", &["/app/Shop.Checkout.Web", "--urls"]),
            ["Shop.Checkout.W", "Shop.Checkout.Web"]
        );
        let dotnet = ["/usr/bin/dotnet", "exec", "--runtimeconfig", "a.json", "/app/Shop.dll", "Other.dll"];
        assert_eq!(all_names("dotnet", &dotnet), ["dotnet", "dotnet", "Shop.dll", "Shop"]);
        assert_eq!(all_names("java", &["java", "Shop.dll"]), ["java", "java"]);
        assert_eq!(all_names("x", &[""]), ["x"]);
    }

    #[test]
    fn command_lines_are_shown_in_one_bounded_line() {
        assert_eq!(printable(b"a\0b c\x1b[31m\n\0\0"), "a b c [31m ");
        assert_eq!(printable(b""), "");
        let long = printable("\u{e9}".repeat(1000).as_bytes());
        assert_eq!(long, format!("{}...", "\u{e9}".repeat(MAX_SHOWN_CHARS)));
    }

    #[test]
    fn kernel_threads_and_zombies_have_no_name() {
        const RUNNING: &str = "VmSize:\t1 kB\nState:\tR (running)\n";
        let directory = tempfile::tempdir().unwrap();
        let proc = directory.path();
        add_process(proc, 2, "State:\tS (sleeping)\n", "shop\n", "");
        add_process(proc, 3, "State:\tZ (zombie)\n", "shop\n", "");
        add_process(proc, 40, RUNNING, "a.out\n", "./shop\0--port\x00080\0");
        add_process(proc, 5, RUNNING, "Shopping\n", "x\0");
        add_process(proc, 6, RUNNING, "other\n", "other\0");
        let search = find_processes_by_name(&ProcFs::from_capture(proc.to_owned()), "shop").unwrap();
        let command_line = "./shop --port 080".to_owned();
        let found = NamedProcess { pid: Pid(40), uid: 1000, container: None, command_line };
        let similar = BTreeSet::from(["Shopping".to_owned()]);
        assert_eq!(search, NameSearch { count: 1, matching: vec![found], similar });
    }

    #[test]
    fn all_processes_with_a_name_are_counted_and_the_first_ones_described() {
        let directory = tempfile::tempdir().unwrap();
        for pid in 100..140 {
            add_process(directory.path(), pid, "VmSize:\t1 kB\n", "shop\n", "shop\0");
        }
        let search =
            find_processes_by_name(&ProcFs::from_capture(directory.path().to_owned()), "shop").unwrap();
        let described: Vec<_> = search.matching.iter().map(|process| process.pid).collect();
        assert_eq!((search.count, described), (40, Vec::from_iter((100..116).map(Pid))));
    }

    #[test]
    fn a_running_process_is_found_and_the_calling_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("a-program-with-a-long-name");
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let proc = ProcFs::live();
        let found = find_processes_by_name(&proc, "a-program-with-a-long-name").unwrap().matching;
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [Pid(child.id())]);
        drop(child.stdin.take());
        child.wait().unwrap();
        let own = std::env::current_exe().unwrap();
        let own = find_processes_by_name(&proc, own.file_name().unwrap().to_str().unwrap()).unwrap();
        assert!(own.matching.iter().all(|process| process.pid != Pid::own()), "{own:?}");
    }

    #[test]
    fn paths_are_not_names() {
        for name in ["", "/usr/bin/dotnet"] {
            let error = find_processes_by_name(&ProcFs::live(), name).unwrap_err();
            assert!(matches!(error, FindError::Invalid(_)), "{error}");
        }
    }
}
