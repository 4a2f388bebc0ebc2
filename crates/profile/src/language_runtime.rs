//! The runtimes of languages, found by the names of their files: which functions they hide from a profiler, and what shows these.

use crate::Reason;

/// A runtime that compiles or interprets code.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LanguageRuntime {
    /// The Java virtual machine HotSpot.
    Java,
    /// .NET.
    Dotnet,
    /// Mono.
    Mono,
    /// Erlang and Elixir.
    Erlang,
    /// Node.js.
    Node,
    /// PHP.
    Php,
    /// Ruby.
    Ruby,
    /// The reference implementation of Python.
    CPython,
    /// LuaJIT.
    LuaJit,
    /// Lua.
    Lua,
    /// Perl.
    Perl,
    /// A shell.
    Shell,
}

/// What is known of a runtime.
struct Row {
    runtime: LanguageRuntime,
    name: &'static str,
    /// The names of its files without versions.
    files: &'static [&'static str],
    /// The reason of its JIT code without names, and what has it write a perf map.
    jit: Option<(Reason, &'static str)>,
    /// Whether it interprets functions, whose calls are no frames of the native stack.
    is_interpreter: bool,
    /// What makes the functions visible that it interprets, if anything does.
    shown_by: Option<&'static str>,
}

/// By precedence, for processes with several of them: programs embed the last ones.
const ROWS: [Row; 12] = [
    Row {
        runtime: LanguageRuntime::Java,
        name: "Java",
        files: &["libjvm"],
        jit: Some((
            Reason::NoJavaMap,
            "run `jcmd PID Compiler.perfmap` while it is sampled (JDK 17 and later), and start it with \
             -XX:+PreserveFramePointer, so that stacks are complete",
        )),
        is_interpreter: false,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Dotnet,
        name: ".NET",
        files: &["libcoreclr", "libclrjit"],
        jit: Some((
            Reason::NoDotnetMap,
            "start it without DOTNET_EnableDiagnostics=0 and with a writable temporary directory, or with \
             DOTNET_PerfMapEnabled=3",
        )),
        is_interpreter: false,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Mono,
        name: "Mono",
        files: &["mono", "mono-sgen", "libmonosgen"],
        jit: Some((Reason::NoMonoMap, "start it with `mono --jitmap`")),
        is_interpreter: false,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Erlang,
        name: "Erlang",
        files: &["beam.smp", "beam"],
        jit: Some((
            Reason::NoErlangMap,
            "start it with `erl +JPperf true` (OTP 24 and later), or ERL_FLAGS='+JPperf true'",
        )),
        is_interpreter: false,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Node,
        name: "Node.js",
        files: &["node", "nodejs", "libnode"],
        jit: Some((
            Reason::NoNodeMap,
            "start it with `node --perf-basic-prof --interpreted-frames-native-stack`",
        )),
        is_interpreter: false,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Php,
        name: "PHP",
        files: &["php", "php-fpm", "php-cgi", "libphp"],
        jit: Some((Reason::NoPhpMap, "set opcache.jit_debug=16 in php.ini, which has it write a perf map")),
        is_interpreter: true,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Ruby,
        name: "Ruby",
        files: &["ruby", "libruby"],
        jit: Some((Reason::NoRubyMap, "start it with `ruby --yjit-perf` (Ruby 3.3 and later)")),
        is_interpreter: true,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::CPython,
        name: "CPython",
        files: &["python", "libpython"],
        jit: None,
        is_interpreter: true,
        shown_by: Some("start it with `python3 -X perf` (Python 3.12 and later)"),
    },
    Row {
        runtime: LanguageRuntime::LuaJit,
        name: "LuaJIT",
        files: &["luajit", "libluajit"],
        jit: Some((
            Reason::NoLuaJitMap,
            "build LuaJIT with -DLUAJIT_USE_PERFTOOLS, which has it write a perf map",
        )),
        is_interpreter: true,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Lua,
        name: "Lua",
        files: &["lua", "liblua"],
        jit: None,
        is_interpreter: true,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Perl,
        name: "Perl",
        files: &["perl", "libperl"],
        jit: None,
        is_interpreter: true,
        shown_by: None,
    },
    Row {
        runtime: LanguageRuntime::Shell,
        name: "the shell",
        files: &["bash", "dash", "sh", "zsh", "ksh"],
        jit: None,
        is_interpreter: true,
        shown_by: None,
    },
];

impl LanguageRuntime {
    /// The runtime to which a file belongs, by its path: `/usr/lib/libpython3.11.so.1.0`, `/usr/bin/php8.2`.
    #[must_use]
    pub fn of_module(path: &str) -> Option<Self> {
        let stem = stem(path);
        ROWS.iter().find(|row| row.files.contains(&stem)).map(|row| row.runtime)
    }

    /// The name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// Why JIT code of it has no name where it writes no perf map.
    #[must_use]
    pub fn reason_without_map(self) -> Reason {
        self.row().and_then(|row| row.jit).map_or(Reason::NoJitMap, |(reason, _)| reason)
    }

    /// What has the runtime with this reason of its unsymbolized JIT code write a perf map.
    pub(crate) fn perf_map_instruction(reason: Reason) -> Option<&'static str> {
        ROWS.iter().filter_map(|row| row.jit).find(|(of_row, _)| *of_row == reason).map(|(_, text)| text)
    }

    /// Whether it interprets functions, whose calls are no frames of the native stack.
    #[must_use]
    pub fn is_interpreter(self) -> bool {
        self.row().is_some_and(|row| row.is_interpreter)
    }

    /// What makes the functions visible that it interprets, if anything does.
    #[must_use]
    pub fn shown_by(self) -> Option<&'static str> {
        self.row()?.shown_by
    }

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.runtime == self)
    }
}

/// The file name of a path without the mark of a deleted file, the extension of a library and versions.
fn stem(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.split_once(".so").map_or(name, |(name, _)| name);
    let is_version =
        |(at, _): &(usize, &str)| name[at + 1..].starts_with(|first: char| first.is_ascii_digit());
    let name = name.match_indices('-').find(is_version).map_or(name, |(at, _)| &name[..at]);
    name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_found_by_its_files_of_any_version() {
        for (path, runtime) in [
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", Some(LanguageRuntime::Java)),
            ("/usr/share/dotnet/shared/9.0.1/libcoreclr.so", Some(LanguageRuntime::Dotnet)),
            ("/usr/lib/libmonosgen-2.0.so.1.0.0", Some(LanguageRuntime::Mono)),
            ("/usr/bin/mono-sgen", Some(LanguageRuntime::Mono)),
            ("/usr/lib/erlang/erts-13.1.5/bin/beam.smp", Some(LanguageRuntime::Erlang)),
            ("/usr/bin/node", Some(LanguageRuntime::Node)),
            ("/usr/lib/libnode.so.108", Some(LanguageRuntime::Node)),
            ("/usr/bin/php8.2", Some(LanguageRuntime::Php)),
            ("/usr/sbin/php-fpm8.2", Some(LanguageRuntime::Php)),
            ("/usr/lib/libruby-3.1.so.3.1.2", Some(LanguageRuntime::Ruby)),
            ("/usr/bin/python3.11 (deleted)", Some(LanguageRuntime::CPython)),
            ("/usr/lib/libpython3.11.so.1.0", Some(LanguageRuntime::CPython)),
            ("/usr/bin/luajit-2.1.0-beta3", Some(LanguageRuntime::LuaJit)),
            ("/usr/lib/libluajit-5.1.so.2.1.0", Some(LanguageRuntime::LuaJit)),
            ("/usr/bin/lua5.4", Some(LanguageRuntime::Lua)),
            ("/usr/lib/libperl.so.5.36.0", Some(LanguageRuntime::Perl)),
            ("/usr/bin/bash", Some(LanguageRuntime::Shell)),
            ("/usr/bin/pythonic", None),
            ("/usr/lib/libc.so.6", None),
            ("[vdso]", None),
            ("", None),
        ] {
            assert_eq!(LanguageRuntime::of_module(path), runtime, "{path}");
        }
    }

    #[test]
    fn each_runtime_has_one_row() {
        for row in &ROWS {
            assert_eq!(row.runtime.name(), row.name);
            assert_eq!(ROWS.iter().filter(|other| other.runtime == row.runtime).count(), 1, "{}", row.name);
            let jit = row.jit.is_some();
            assert_eq!(row.runtime.reason_without_map() == Reason::NoJitMap, !jit, "{}", row.name);
        }
    }
}
