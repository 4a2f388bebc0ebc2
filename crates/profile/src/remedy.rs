//! What to do about frames without a name, and about profiles without samples.

use super::{Ledger, Reason, UnsymbolizedFrames};

impl Ledger {
    /// Why no sample was taken, most likely, when none was.
    #[must_use]
    pub fn why_empty(&self) -> Option<&'static str> {
        let why = "the target did not run on a CPU in this time (children need --children)";
        (self.reported == 0).then_some(why)
    }
}

impl UnsymbolizedFrames {
    /// The one thing to do about these frames in the words of the command line, where there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        let file = self.module.rsplit('/').next().unwrap_or_default();
        let beside = format!("put {file}.dbg (its debug file) beside it");
        let given = "name its directory with --debug-dir";
        let is_file = self.module.starts_with('/');
        Some(match self.reason {
            Reason::NoSymbols | Reason::NoSymbolHere if file.ends_with(".dll") => return None,
            Reason::NoSymbols | Reason::OnlyNearestExport if is_file => {
                format!("{beside}, {given}, or ask for it with --symbol-server {}", server_of(file))
            }
            Reason::NoSymbolHere | Reason::NotOnSymbolServer | Reason::SymbolServerFailed if is_file => {
                format!("{beside}, or {given}")
            }
            Reason::SymbolsOnTheWay => "sample for longer, until it is there".to_owned(),
            Reason::ProcessNotReadable => "give the profiler CAP_SYS_PTRACE".to_owned(),
            Reason::FileNotReadable => "give the profiler CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE".to_owned(),
            Reason::FileMissing | Reason::FileReplaced => {
                "give the profiler CAP_CHECKPOINT_RESTORE, to reach files that were deleted or replaced"
                    .to_owned()
            }
            Reason::KernelAddressesHidden => {
                "give the profiler CAP_SYSLOG, or set sysctl kernel.kptr_restrict=0".to_owned()
            }
            Reason::NoJitMap => "start the target with a perf map: --perf-basic-prof for node, \
                             DOTNET_PerfMapEnabled=3 for .NET without diagnostics"
                .to_owned(),
            Reason::JitMapRefused => {
                "the map must be a regular file of the target's user, not older than the \
                                  process"
                    .to_owned()
            }
            Reason::RuntimeNotReachable => "give the profiler CAP_DAC_OVERRIDE".to_owned(),
            Reason::RuntimeSilent => {
                "the .NET runtime is stopped or very busy: sample again, for longer".to_owned()
            }
            _ => return None,
        })
    }
}

/// Who has the debug file of a file of that name, most likely.
fn server_of(file: &str) -> &'static str {
    const OF_DOTNET: [&str; 4] = ["libclr", "libcoreclr", "libhost", "libSystem."];
    if OF_DOTNET.iter().any(|beginning| file.starts_with(beginning)) { "microsoft" } else { "debuginfod" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy_for(module: &str, reason: Reason) -> Option<String> {
        UnsymbolizedFrames { module: module.to_owned(), reason }.remedy()
    }

    #[test]
    fn a_stripped_library_wants_its_debug_file() {
        assert!(remedy_for("/a/libx.so", Reason::NoSymbols).unwrap().contains("libx.so.dbg"));
    }

    #[test]
    fn the_server_that_is_likely_to_have_the_debug_file_is_named() {
        for (module, server) in [("/rt/libcoreclr.so", "microsoft"), ("/lib/libssl.so.3", "debuginfod")] {
            for reason in [Reason::NoSymbols, Reason::OnlyNearestExport] {
                let remedy = remedy_for(module, reason).unwrap();
                assert!(remedy.ends_with(&format!("--symbol-server {server}")), "{remedy}");
            }
        }
        for reason in [Reason::NotOnSymbolServer, Reason::SymbolServerFailed] {
            assert!(!remedy_for("/rt/libcoreclr.so", reason).unwrap().contains("--symbol-server"));
        }
    }

    #[test]
    fn a_missing_privilege_is_named() {
        assert!(remedy_for("", Reason::ProcessNotReadable).unwrap().contains("CAP_SYS_PTRACE"));
        assert!(remedy_for("[kernel]", Reason::KernelAddressesHidden).unwrap().contains("CAP_SYSLOG"));
    }

    #[test]
    fn only_a_profile_without_samples_is_empty() {
        assert!(Ledger::default().why_empty().unwrap().contains("--children"));
        assert_eq!(Ledger { reported: 1, ..Ledger::default() }.why_empty(), None);
    }

    #[test]
    fn where_nothing_helps_nothing_is_said() {
        assert_eq!(remedy_for("/a/System.dll", Reason::NoSymbolHere), None);
        assert_eq!(remedy_for("", Reason::NoMapping), None);
        assert_eq!(remedy_for("[vdso]", Reason::NoSymbolHere), None);
    }
}
