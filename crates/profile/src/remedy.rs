//! Remedies for unsymbolized frames, and the likely cause of a profile without samples.

use std::fmt;

use super::{Event, EventLedger, LanguageRuntime, Reason, UnsymbolizedFrames};

/// An action after which frames are symbolized. Its text names no option of a program.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Provide the debug file of the module.
    ProvideDebugFile {
        /// The usual name of the debug file: `libc.so.6.dbg`.
        debug_file: String,
        /// The symbol server that most likely has it, `microsoft` or `debuginfod`; `None` when no server has it.
        symbol_server: Option<&'static str>,
    },
    /// Sample until the download of the debug file is complete.
    AwaitDownload,
    /// Grant the profiler these capabilities.
    GrantCapabilities(&'static [&'static str]),
    /// Let the kernel show its addresses.
    ShowKernelAddresses,
    /// Have the runtime of the target write a perf map, in its own way.
    WritePerfMap(&'static str),
    /// Correct the owner or the age of the perf map.
    ReplacePerfMap,
    /// Sample again, for a longer time: the runtime did not send its events.
    SampleAgain,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ProvideDebugFile { debug_file, symbol_server } => {
                write!(f, "put its debug file {debug_file} beside it or in a debug directory")?;
                return match symbol_server {
                    Some(server) => write!(f, ", or use the symbol server {server}"),
                    None => Ok(()),
                };
            }
            Self::GrantCapabilities(names) => {
                return write!(f, "grant the profiler {}", names.join(" and "));
            }
            Self::AwaitDownload => "sample for longer, until the download is complete",
            Self::ShowKernelAddresses => {
                "grant the profiler CAP_SYSLOG, or set sysctl kernel.kptr_restrict=0"
            }
            Self::WritePerfMap(instruction) => instruction,
            Self::ReplacePerfMap => {
                "the map must be a regular file of the target's user, and not older than the process"
            }
            Self::SampleAgain => "the .NET runtime is stopped or very busy: sample again, for longer",
        };
        f.write_str(text)
    }
}

impl EventLedger {
    /// The most likely cause of an event without samples; `None` if there are samples.
    #[must_use]
    pub fn why_empty(&self, event: &Event) -> Option<&'static str> {
        (self.reported == 0).then(|| event.why_empty())
    }
}

impl UnsymbolizedFrames {
    /// The action that symbolizes these frames, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        let file = self.module.rsplit('/').next().unwrap_or_default();
        let is_file = self.module.starts_with('/');
        let provide = |symbol_server| {
            let debug_file = format!("{file}.dbg");
            Some(Remedy::ProvideDebugFile { debug_file, symbol_server })
        };
        match self.reason {
            Reason::NoSymbols | Reason::NoSymbolHere if file.ends_with(".dll") => None,
            Reason::NoSymbols | Reason::OnlyNearestExport if is_file => provide(Some(symbol_server(file))),
            Reason::NoSymbolHere | Reason::NotOnSymbolServer | Reason::SymbolServerFailed if is_file => {
                provide(None)
            }
            Reason::SymbolsOnTheWay => Some(Remedy::AwaitDownload),
            Reason::ProcessNotReadable => Some(Remedy::GrantCapabilities(&["CAP_SYS_PTRACE"])),
            Reason::FileNotReadable => {
                Some(Remedy::GrantCapabilities(&["CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"]))
            }
            // /proc/PID/map_files opens files that were deleted or replaced.
            Reason::FileMissing | Reason::FileReplaced => {
                Some(Remedy::GrantCapabilities(&["CAP_CHECKPOINT_RESTORE"]))
            }
            Reason::KernelAddressesHidden => Some(Remedy::ShowKernelAddresses),
            Reason::NoJitMap => Some(Remedy::WritePerfMap(WRITE_ANY_PERF_MAP)),
            Reason::JitMapRefused => Some(Remedy::ReplacePerfMap),
            Reason::RuntimeNotReachable => Some(Remedy::GrantCapabilities(&["CAP_DAC_OVERRIDE"])),
            Reason::RuntimeSilent => Some(Remedy::SampleAgain),
            reason => LanguageRuntime::perf_map_instruction(reason).map(Remedy::WritePerfMap),
        }
    }
}

/// What names the JIT code of an unknown runtime.
const WRITE_ANY_PERF_MAP: &str =
    "have its runtime write a perf map (/tmp/perf-PID.map) or a jitdump, as its manual says";

/// The symbol server that most likely has the debug file of a module with this file name.
fn symbol_server(file_name: &str) -> &'static str {
    const DOTNET_PREFIXES: [&str; 4] = ["libclr", "libcoreclr", "libhost", "libSystem."];
    let is_dotnet = DOTNET_PREFIXES.iter().any(|prefix| file_name.starts_with(prefix));
    if is_dotnet { "microsoft" } else { "debuginfod" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampling;

    fn remedy(module: &str, reason: Reason) -> Option<Remedy> {
        UnsymbolizedFrames { module: module.to_owned(), reason }.remedy()
    }

    #[test]
    fn a_stripped_library_needs_its_debug_file() {
        let text = remedy("/a/libx.so", Reason::NoSymbols).unwrap().to_string();
        assert!(text.contains("libx.so.dbg") && text.ends_with("symbol server debuginfod"), "{text}");
    }

    #[test]
    fn the_symbol_server_that_likely_has_the_debug_file_is_named() {
        for (module, expected) in [("/rt/libcoreclr.so", "microsoft"), ("/lib/libssl.so.3", "debuginfod")] {
            for reason in [Reason::NoSymbols, Reason::OnlyNearestExport] {
                let remedy = remedy(module, reason);
                assert!(
                    matches!(&remedy, Some(Remedy::ProvideDebugFile { symbol_server: Some(server), .. }) if *server == expected),
                    "{remedy:?}"
                );
            }
        }
        for reason in [Reason::NotOnSymbolServer, Reason::SymbolServerFailed] {
            let text = remedy("/rt/libcoreclr.so", reason).unwrap().to_string();
            assert!(text.contains("libcoreclr.so.dbg") && !text.contains("symbol server"), "{text}");
        }
    }

    #[test]
    fn a_missing_capability_is_named() {
        let expected = Some(Remedy::GrantCapabilities(&["CAP_SYS_PTRACE"]));
        assert_eq!(remedy("", Reason::ProcessNotReadable), expected);
        let text = remedy("[kernel]", Reason::KernelAddressesHidden).unwrap().to_string();
        assert!(text.contains("CAP_SYSLOG"), "{text}");
    }

    #[test]
    fn only_a_profile_without_samples_is_empty() {
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let sampled = EventLedger { reported: 1, ..EventLedger::default() };
        for (event, word) in [
            (Event::at_frequency("cpu-clock", 99), "did not run"),
            (Event::at_frequency("wall", 49), "no threads"),
            (waits, "long enough"),
        ] {
            let cause = EventLedger::default().why_empty(&event).unwrap();
            assert!(cause.contains(word), "{cause}");
            assert_eq!(sampled.why_empty(&event), None);
        }
    }

    #[test]
    fn the_remedy_for_jit_code_is_that_of_its_runtime() {
        for (runtime, word) in [
            (LanguageRuntime::Java, "jcmd PID Compiler.perfmap"),
            (LanguageRuntime::Java, "-XX:+PreserveFramePointer"),
            (LanguageRuntime::Dotnet, "DOTNET_PerfMapEnabled=3"),
            (LanguageRuntime::Mono, "--jitmap"),
            (LanguageRuntime::Erlang, "+JPperf true"),
            (LanguageRuntime::Node, "--perf-basic-prof --interpreted-frames-native-stack"),
            (LanguageRuntime::Php, "opcache.jit_debug"),
            (LanguageRuntime::Ruby, "--yjit-perf"),
            (LanguageRuntime::LuaJit, "LUAJIT_USE_PERFTOOLS"),
            (LanguageRuntime::CPython, "a perf map (/tmp/perf-PID.map)"),
        ] {
            let text = remedy("", runtime.reason_without_map()).unwrap().to_string();
            assert!(text.contains(word), "{text}");
            let is_of_node = runtime == LanguageRuntime::Node;
            assert_eq!(text.contains("node"), is_of_node, "{text}");
        }
        let text = remedy("", Reason::NoJitMap).unwrap().to_string();
        assert!(!text.contains("node") && !text.contains("NET"), "{text}");
    }

    #[test]
    fn some_reasons_have_no_remedy() {
        assert_eq!(remedy("/a/System.dll", Reason::NoSymbolHere), None);
        assert_eq!(remedy("", Reason::NoMapping), None);
        assert_eq!(remedy("[vdso]", Reason::NoSymbolHere), None);
    }
}
