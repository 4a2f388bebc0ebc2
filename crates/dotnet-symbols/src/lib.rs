//! Names the methods of .NET programs from the outside: from files and bytes, without a runtime and without a debugger.
//!
//! * Precompiled code: [`readytorun`] maps an address of a ReadyToRun image (`System.Private.CoreLib.dll`, a composite
//!   image, an assembly in a single-file program) to the name of its method.
//! * JIT code: [`eventpipe`] encodes the commands of the diagnostics protocol, and decodes nettrace streams with the
//!   address and name of each method that a runtime compiles.
//! * Code that NativeAOT compiled: [`native_aot`] converts symbols to names in C# spelling.
//! * Native code of a stripped runtime: [`call_tables`] reads the names of functions that managed code calls,
//!   [`jit_helpers`] those of helpers that JIT code calls, and [`readytorun::RuntimeCells`] has the places of helpers that
//!   precompiled code calls. [`stubs`] recognizes the code that a runtime generates, and [`calls`] decodes what calls lead to.
//! * Metadata: [`metadata`] reads the tables of a module, [`signature`] decodes signatures, and [`type_spelling`] spells types as
//!   the runtime's events do.
//! * Names: [`managed`] normalizes the names of perf maps, jitdumps, events and images to one form, and converts them
//!   to C# spelling.
//!
//! Input is untrusted: no input makes the crate panic, and memory and work are limited. The crate opens no socket and no
//! file. The caller passes bytes, an open [`Image`](profiler_binary_reader::Image), or an implementation of
//! [`readytorun::AssemblyFiles`].
//!
//! # Examples
//!
//! C# spelling:
//!
//! ```
//! use profiler_dotnet_symbols::managed::{Tier, csharp_name, normalize_name};
//!
//! let raw = "instance void [app] Shop.Orders+<PlaceAsync>d__7::MoveNext()[OptimizedTier1]";
//! let method = normalize_name(raw);
//! assert_eq!(method.name, "app!Shop.Orders+<PlaceAsync>d__7.MoveNext()");
//! assert_eq!(method.tier, Some(Tier::OptimizedTier1));
//! assert_eq!(csharp_name(&method.name), "app!Shop.Orders.PlaceAsync");
//! ```
//!
//! The method at an address of a ReadyToRun image:
//!
//! ```
//! use std::{fs::File, path::Path};
//!
//! use profiler_addresses::ElfAddress;
//! use profiler_binary_reader::Image;
//! use profiler_dotnet_symbols::readytorun::{AssemblyFiles, AssemblyLocation, ReadyToRunModule};
//!
//! /// Opens the assemblies that a name refers to.
//! struct Files;
//!
//! impl AssemblyFiles for Files {
//!     fn open(&self, path: &Path) -> Option<Image> {
//!         Image::from_file(File::open(path).ok()?).ok()
//!     }
//! }
//!
//! # #[cfg(target_arch = "x86_64")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("testdata/small.dll");
//! let image = Image::Memory(std::fs::read(path)?);
//! let location = AssemblyLocation::from_image_path(path);
//! let mut module = ReadyToRunModule::open(image, location, &Default::default())?;
//! let method = module.symbolize(ElfAddress(0x1100), &Files)?;
//! assert_eq!(method.name, "Test!N.Outer.Run(int32)");
//! # Ok(())
//! # }
//! # #[cfg(not(target_arch = "x86_64"))]
//! # fn main() {}
//! ```
//!
//! The commands for an EventPipe session, and the stream that follows the reply:
//!
//! ```
//! use profiler_dotnet_symbols::eventpipe::{
//!     code_events::{CodeEvent, RUNTIME_PROVIDER},
//!     ipc::{CollectCommand, ProviderConfig, SessionConfig},
//!     nettrace::Decoder,
//! };
//!
//! let config = SessionConfig {
//!     buffer_mib: 32,
//!     rundown_keywords: 0,
//!     collects_stacks: false,
//!     providers: &[ProviderConfig {
//!         name: RUNTIME_PROVIDER,
//!         keywords: 0x10, // JIT
//!         level: 5,       // verbose
//!         filter: "",
//!         events: &[],
//!     }],
//! };
//! let command = config.encode(CollectCommand::CollectTracing2);
//! assert!(command.starts_with(b"DOTNET_IPC_V1\0"));
//!
//! let mut decoder = Decoder::default();
//! let received = b"Nettrace\x14\0\0\0!FastSerialization.1";
//! decoder.feed(received, |_clock, event| {
//!     if let Some(Ok(CodeEvent::Method(method))) = CodeEvent::decode(event) {
//!         println!("{:x} {:x} {}", method.start, method.size_bytes, method.name);
//!     }
//! })?;
//! assert!(!decoder.is_ended());
//! # Ok::<(), profiler_binary_reader::ParseError>(())
//! ```

pub mod call_tables;
pub mod calls;
pub mod eventpipe;
pub mod jit_helpers;
pub mod managed;
pub mod metadata;
pub mod native_aot;
pub mod pe;
pub mod readytorun;
pub mod signature;
pub mod stubs;
pub mod type_spelling;
