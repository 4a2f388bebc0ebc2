//! Decodes the runtime's events about methods, modules and assemblies: `MethodLoadVerbose`, `MethodUnloadVerbose`,
//! `MethodJittingStarted`, `ModuleLoad`, `AssemblyLoad`, and their rundown events.
//!
//! Payloads: dotnet/runtime, src/coreclr/vm/ClrEtwAll.man, `MethodLoadUnloadVerbose`, `MethodJittingStarted`,
//! `ModuleLoadUnload` and `AssemblyLoadUnload`. Newer versions only append fields.

use profiler_binary_reader::{ByteCursor, ParseError};

use super::{nettrace::Event, utf16::read_terminated};
use crate::managed::{self, Tier};

/// The provider of events about methods and modules that are loaded during a session.
pub const RUNTIME_PROVIDER: &str = "Microsoft-Windows-DotNETRuntime";

/// The provider of rundown events: one for each method and module that exists at the end of a session.
pub const RUNDOWN_PROVIDER: &str = "Microsoft-Windows-DotNETRuntimeRundown";

/// An event about the code of a process.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeEvent {
    /// A method has code.
    Method(MethodEvent),
    /// The JIT begins to compile a method. The compilation ends with the [`Method`](Self::Method) event of the same method
    /// on the same thread.
    CompilationStarted(CompilationEvent),
    /// The code of a method is unloaded. Its addresses can be used again.
    MethodUnloaded(MethodEvent),
    /// A module is loaded.
    Module(ModuleEvent),
    /// An assembly is loaded.
    Assembly(AssemblyEvent),
    /// A module is unloaded, with the code of its methods.
    ModuleUnloaded,
    /// The rundown is complete.
    RundownComplete,
}

/// A method and its code.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodEvent {
    /// Identifies the method within the process.
    pub method_id: u64,
    /// The id of its module, as in [`ModuleEvent::module_id`].
    pub module_id: u64,
    /// The first address of its code in the process.
    pub start: u64,
    /// The size of its code.
    pub size_bytes: u32,
    /// How the code was compiled.
    pub tier: Tier,
    /// Whether it is a method without metadata (`DynamicMethod`, a stub of the runtime). Its code is unloaded when nothing
    /// refers to it.
    pub is_dynamic: bool,
    /// `Namespace.Type.Method(arguments)`, without its module.
    pub name: String,
}

/// A method that the JIT compiles.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilationEvent {
    /// As in [`MethodEvent::method_id`].
    pub method_id: u64,
    /// As in [`MethodEvent::module_id`].
    pub module_id: u64,
    /// As in [`MethodEvent::name`].
    pub name: String,
}

/// A loaded module.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleEvent {
    /// Identifies the module within the process.
    pub module_id: u64,
    /// The id of its assembly, as in [`AssemblyEvent::assembly_id`].
    pub assembly_id: u64,
    /// The path of its file. A module without a file has a name instead.
    pub path: String,
}

/// A loaded assembly.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblyEvent {
    /// Identifies the assembly within the process.
    pub assembly_id: u64,
    /// Whether the assembly is unloaded when nothing refers to it (`AssemblyBuilderAccess.RunAndCollect`, collectible
    /// `AssemblyLoadContext`).
    pub is_collectible: bool,
}

impl CodeEvent {
    /// Decodes an event. `None` is an event about something else.
    pub fn decode(event: &Event<'_>) -> Option<Result<Self, ParseError>> {
        const METHOD_LOAD_VERBOSE: u32 = 143;
        const METHOD_UNLOAD_VERBOSE: u32 = 144;
        const METHOD_JITTING_STARTED: u32 = 145;
        const MODULE_LOAD: u32 = 152;
        const MODULE_UNLOAD: u32 = 153;
        const ASSEMBLY_LOAD: u32 = 154;
        const METHOD_DC_START_VERBOSE: u32 = 143;
        const METHOD_DC_END_VERBOSE: u32 = 144;
        const DC_END_COMPLETE: u32 = 146;
        const MODULE_DC_START: u32 = 153;
        const MODULE_DC_END: u32 = 154;
        const ASSEMBLY_DC_START: u32 = 155;
        const ASSEMBLY_DC_END: u32 = 156;
        // Each provider numbers its events on its own.
        Some(match (event.kind.provider.as_str(), event.kind.id) {
            (RUNTIME_PROVIDER, METHOD_LOAD_VERBOSE)
            | (RUNDOWN_PROVIDER, METHOD_DC_START_VERBOSE | METHOD_DC_END_VERBOSE) => {
                MethodEvent::decode(event.payload).map(Self::Method)
            }
            (RUNTIME_PROVIDER, MODULE_LOAD) | (RUNDOWN_PROVIDER, MODULE_DC_START | MODULE_DC_END) => {
                ModuleEvent::decode(event.payload).map(Self::Module)
            }
            (RUNTIME_PROVIDER, METHOD_JITTING_STARTED) => {
                CompilationEvent::decode(event.payload).map(Self::CompilationStarted)
            }
            (RUNTIME_PROVIDER, ASSEMBLY_LOAD) | (RUNDOWN_PROVIDER, ASSEMBLY_DC_START | ASSEMBLY_DC_END) => {
                AssemblyEvent::decode(event.payload).map(Self::Assembly)
            }
            (RUNTIME_PROVIDER, METHOD_UNLOAD_VERBOSE) => {
                MethodEvent::decode(event.payload).map(Self::MethodUnloaded)
            }
            (RUNTIME_PROVIDER, MODULE_UNLOAD) => Ok(Self::ModuleUnloaded),
            (RUNDOWN_PROVIDER, DC_END_COMPLETE) => Ok(Self::RundownComplete),
            _ => return None,
        })
    }
}

impl MethodEvent {
    fn decode(payload: &[u8]) -> Result<Self, ParseError> {
        /// `MethodFlagsMap`.
        const DYNAMIC: u32 = 0x1;
        let mut fields = ByteCursor::new(payload, 0);
        let (method_id, module_id) = (fields.u64()?, fields.u64()?);
        let (start, size_bytes) = (fields.u64()?, fields.u32()?);
        let (_token, flags) = (fields.u32()?, fields.u32()?);
        let (tier, name) = (Tier::from_event_flags(flags), read_name(&mut fields)?);
        let is_dynamic = flags & DYNAMIC != 0;
        Ok(Self { method_id, module_id, start, size_bytes, tier, is_dynamic, name })
    }
}

impl CompilationEvent {
    fn decode(payload: &[u8]) -> Result<Self, ParseError> {
        let mut fields = ByteCursor::new(payload, 0);
        let (method_id, module_id) = (fields.u64()?, fields.u64()?);
        let (_token, _il_bytes) = (fields.u32()?, fields.u32()?);
        Ok(Self { method_id, module_id, name: read_name(&mut fields)? })
    }
}

/// Reads class, method name and signature of a method.
fn read_name(fields: &mut ByteCursor<'_>) -> Result<String, ParseError> {
    let mut text = || read_terminated(fields);
    let (class, method, signature) = (text()?, text()?, text()?);
    Ok(managed::name_from_event(&class, &method, &signature))
}

impl ModuleEvent {
    fn decode(payload: &[u8]) -> Result<Self, ParseError> {
        let mut fields = ByteCursor::new(payload, 0);
        let (module_id, assembly_id) = (fields.u64()?, fields.u64()?);
        let (_flags, _reserved) = (fields.u32()?, fields.u32()?);
        Ok(Self { module_id, assembly_id, path: read_terminated(&mut fields)? })
    }

    /// The name of its assembly: the file name without `.dll` or `.exe`. Empty when the path has no file name.
    pub fn assembly_name(&self) -> &str {
        let file = self.path.rsplit(['/', '\\']).next().unwrap_or(&self.path);
        file.strip_suffix(".dll").or_else(|| file.strip_suffix(".exe")).unwrap_or(file)
    }
}

impl AssemblyEvent {
    fn decode(payload: &[u8]) -> Result<Self, ParseError> {
        /// `AssemblyFlagsMap`.
        const COLLECTIBLE: u32 = 0x8;
        let mut fields = ByteCursor::new(payload, 0);
        let assembly_id = fields.u64()?;
        let (_domain_id, _binding_id) = (fields.u64()?, fields.u64()?);
        Ok(Self { assembly_id, is_collectible: fields.u32()? & COLLECTIBLE != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::{
        nettrace::EventKind,
        testing::{assembly_payload, compilation_payload, method_payload, module_payload},
    };

    fn decode(provider: &str, id: u32, payload: &[u8]) -> Option<Result<CodeEvent, ParseError>> {
        let kind = EventKind { provider: provider.to_owned(), id, ..EventKind::default() };
        CodeEvent::decode(&Event { kind: &kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] })
    }

    #[test]
    fn the_provider_determines_the_meaning_of_an_event_id() {
        let payload =
            method_payload(3, 0x1000, 16, ["A.B+C", "Run", "instance void  (int32,class System.String)"]);
        let expected = MethodEvent {
            method_id: 99,
            module_id: 3,
            start: 0x1000,
            size_bytes: 16,
            tier: Tier::QuickJitted,
            is_dynamic: false,
            name: "A.B+C.Run(int32,class System.String)".to_owned(),
        };
        for (provider, id) in [(RUNTIME_PROVIDER, 143), (RUNDOWN_PROVIDER, 143), (RUNDOWN_PROVIDER, 144)] {
            assert_eq!(decode(provider, id, &payload), Some(Ok(CodeEvent::Method(expected.clone()))));
        }
        for (provider, id) in [(RUNTIME_PROVIDER, 141), ("Other", 143), (RUNDOWN_PROVIDER, 150)] {
            assert_eq!(decode(provider, id, &payload), None);
        }
        let unloaded = decode(RUNTIME_PROVIDER, 144, &payload);
        assert_eq!(unloaded, Some(Ok(CodeEvent::MethodUnloaded(expected))));
        assert_eq!(decode(RUNTIME_PROVIDER, 153, &payload), Some(Ok(CodeEvent::ModuleUnloaded)));
        assert_eq!(decode(RUNDOWN_PROVIDER, 146, &[]), Some(Ok(CodeEvent::RundownComplete)));
    }

    #[test]
    fn a_compilation_has_the_ids_and_the_name_of_its_method() {
        let payload = compilation_payload(3, ["A.B+C", "Run", "instance void  (int32)"]);
        let expected = CompilationEvent { method_id: 99, module_id: 3, name: "A.B+C.Run(int32)".to_owned() };
        let found = decode(RUNTIME_PROVIDER, 145, &payload);
        assert_eq!(found, Some(Ok(CodeEvent::CompilationStarted(expected))));
        assert_eq!(decode(RUNDOWN_PROVIDER, 145, &payload), None);
        let truncated = decode(RUNTIME_PROVIDER, 145, &payload[..payload.len() - 4]);
        assert_eq!(truncated, Some(Err(ParseError::Malformed)));
    }

    #[test]
    fn a_method_that_is_neither_jitted_nor_dynamic_is_precompiled() {
        const FLAGS_OFFSET: usize = 32;
        let is_precompiled = |flags| {
            let mut payload = method_payload(3, 0x1000, 16, ["A", "Run", "void  ()"]);
            payload[FLAGS_OFFSET] = flags;
            match decode(RUNDOWN_PROVIDER, 144, &payload) {
                Some(Ok(CodeEvent::Method(method))) => method.tier == Tier::Precompiled,
                other => panic!("{other:?} is no method"),
            }
        };
        assert_eq!([0, 2, 4, 1, 8, 9].map(is_precompiled), [true, true, true, false, false, false]);
    }

    #[test]
    fn a_collectible_assembly_has_a_flag() {
        for is_collectible in [true, false] {
            let payload = assembly_payload(5, is_collectible);
            let expected = AssemblyEvent { assembly_id: 5, is_collectible };
            for (provider, id) in [(RUNTIME_PROVIDER, 154), (RUNDOWN_PROVIDER, 155), (RUNDOWN_PROVIDER, 156)]
            {
                assert_eq!(decode(provider, id, &payload), Some(Ok(CodeEvent::Assembly(expected))));
            }
            let truncated = decode(RUNTIME_PROVIDER, 154, &payload[..27]);
            assert_eq!(truncated, Some(Err(ParseError::Malformed)));
        }
    }

    #[test]
    fn a_module_has_the_name_of_its_assembly() {
        for (provider, id, path, name) in [
            (RUNDOWN_PROVIDER, 154, "/app/My.App.dll", "My.App"),
            (RUNDOWN_PROVIDER, 153, "tool.exe", "tool"),
            (
                RUNDOWN_PROVIDER,
                154,
                "Anonymously Hosted DynamicMethods Assembly",
                "Anonymously Hosted DynamicMethods Assembly",
            ),
            (RUNDOWN_PROVIDER, 154, "/", ""),
            (RUNTIME_PROVIDER, 152, "C:\\x\\Late.dll", "Late"),
        ] {
            let found = decode(provider, id, &module_payload(7, path));
            let Some(Ok(CodeEvent::Module(module))) = found else { panic!("{found:?} is no module") };
            assert_eq!((module.module_id, module.assembly_id, module.assembly_name()), (7, 5, name));
        }
    }

    #[test]
    fn a_truncated_payload_is_malformed() {
        let payload = method_payload(3, 0x1000, 16, ["A", "B", "void  ()"]);
        for length in 0..payload.len() - 2 {
            assert_eq!(decode(RUNTIME_PROVIDER, 143, &payload[..length]), Some(Err(ParseError::Malformed)));
        }
    }
}
