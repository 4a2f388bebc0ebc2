//! The attribute `profile.frame.type`.

use profiler_profile::{Frame, FrameKind, Reason, SymbolSource, Symbolization};

/// Prefixes of names in the perf maps of runtimes: those of CPython ("Python support for the Linux perf profiler") and of V8
/// (`--perf-basic-prof`).
const PERF_MAP_PREFIXES: [(&str, &str); 2] = [("py::", "cpython"), ("JS:", "v8js")];

/// The value by the semantic conventions (<https://opentelemetry.io/docs/specs/semconv/registry/attributes/profile/>);
/// `None` where the runtime is unknown and for a frame that is no code.
pub(super) fn of(frame: &Frame, name: &str) -> Option<&'static str> {
    match frame.kind {
        FrameKind::Label | FrameKind::Wait => None,
        FrameKind::Kernel => Some("kernel"),
        FrameKind::Precompiled => Some("dotnet"),
        _ if is_dotnet(frame) => Some("dotnet"),
        FrameKind::Jit => {
            let known = PERF_MAP_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
            known.map(|(_, runtime)| *runtime)
        }
        _ => Some("native"),
    }
}

/// Whether a source that only a .NET runtime has named the frame, or would have named it. The runtime's own native functions
/// are in a module.
fn is_dotnet(frame: &Frame) -> bool {
    match frame.symbolization {
        Symbolization::Symbol(
            SymbolSource::ReadyToRun | SymbolSource::RuntimeEvents | SymbolSource::RuntimeMemory,
        ) => true,
        Symbolization::Symbol(
            SymbolSource::RuntimeCallTable | SymbolSource::RuntimeHelper | SymbolSource::StubCode,
        ) => frame.module.is_none(),
        Symbolization::Address(
            Reason::RuntimeStub
            | Reason::RuntimeRefused
            | Reason::RuntimeNotReachable
            | Reason::RuntimeSilent,
        ) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::{Header, ProfileBuilder};

    fn frame_type(kind: FrameKind, name: &str, symbolization: Symbolization) -> Option<&'static str> {
        let mut builder = ProfileBuilder::default();
        let name_id = builder.string(name);
        let address = profiler_addresses::ElfAddress(1);
        let frame = Frame { name: name_id, kind, module: None, address, location: None, symbolization };
        let id = builder.frame(frame);
        let profile = builder.finish(Header::default());
        of(profile.frame(id), name)
    }

    #[test]
    fn a_frame_has_the_type_of_its_runtime() {
        let symbol = Symbolization::Symbol;
        let (native, jit) = (FrameKind::Native, FrameKind::Jit);
        let table = [
            (FrameKind::Kernel, "f", symbol(SymbolSource::Kallsyms), Some("kernel")),
            (native, "f", symbol(SymbolSource::SymbolTable), Some("native")),
            (native, "[a+0x1]", Symbolization::Address(Reason::NoSymbols), Some("native")),
            (FrameKind::Inlined, "f", symbol(SymbolSource::Dwarf), Some("native")),
            (FrameKind::Precompiled, "A!B.C()", symbol(SymbolSource::ReadyToRun), Some("dotnet")),
            (jit, "A!B.C()", symbol(SymbolSource::RuntimeEvents), Some("dotnet")),
            (jit, "[0x1]", Symbolization::Address(Reason::RuntimeStub), Some("dotnet")),
            (jit, "[0x1]", Symbolization::Address(Reason::NoJitMap), None),
            (jit, "Lcom/a/B;::c", symbol(SymbolSource::PerfMap), None),
            (jit, "py::main:/a.py", symbol(SymbolSource::PerfMap), Some("cpython")),
            (jit, "JS:*f a.js:1:1", symbol(SymbolSource::PerfMap), Some("v8js")),
            (FrameKind::Label, "--- woken by", symbol(SymbolSource::Kallsyms), None),
        ];
        for (kind, name, symbolization, expected) in table {
            assert_eq!(frame_type(kind, name, symbolization), expected, "{name}");
        }
    }
}
