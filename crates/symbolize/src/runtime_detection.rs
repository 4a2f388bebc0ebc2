//! Detects the runtime in an ELF file by its exported symbols, and the version of .NET.

use std::path::Path;

use profiler_binary_reader::{Image, ParseError};
use profiler_elf_symbols::Elf;

use crate::symbol_names::managed_code;

/// A runtime of managed code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// CoreCLR as a shared library.
    CoreClr,
    /// CoreCLR, linked into a single-file program.
    SingleFile,
    /// NativeAOT: .NET code that is compiled ahead of time. There is no JIT code.
    NativeAot,
    /// Mono, also as a runtime of .NET. The only symbol source of its JIT code is a perf map.
    Mono,
}

const MONO: &str = "mono_get_root_domain";
const SINGLE_FILE: &str = "DotNetRuntimeInfo";
const CORE_CLR: &str = "coreclr_initialize";
const NATIVE_AOT: &str = "DotNetRuntimeDebugHeader";

/// The runtime in a file, if there is one.
pub(super) fn kind_of(elf: &Elf) -> Option<RuntimeKind> {
    // In order of precedence: Mono and single-file programs can have the exports of CoreCLR too.
    const EXPORTS: [(&str, RuntimeKind); 4] = [
        (MONO, RuntimeKind::Mono),
        (SINGLE_FILE, RuntimeKind::SingleFile),
        (CORE_CLR, RuntimeKind::CoreClr),
        (NATIVE_AOT, RuntimeKind::NativeAot),
    ];
    let exported = elf.find_exports(&EXPORTS.map(|(name, _)| name)).unwrap_or_default();
    let kind = EXPORTS.into_iter().find(|(name, _)| exported.contains(name)).map(|(_, kind)| kind);
    // A library exports what its author chose, and a program that is linked without exports has none.
    kind.or_else(|| (!managed_code(elf).is_empty()).then_some(RuntimeKind::NativeAot))
}

/// Whether a file contains a .NET runtime with a JIT compiler.
pub(crate) fn has_jit_compiler(elf: &Elf) -> bool {
    matches!(kind_of(elf), Some(RuntimeKind::CoreClr | RuntimeKind::SingleFile))
}

/// Whether a file is the JIT compiler of a .NET runtime, which is a library of its own outside of single-file programs.
pub(crate) fn is_jit_compiler(elf: &Elf) -> bool {
    const EXPORTS: [&str; 2] = ["getJit", "jitStartup"];
    elf.find_exports(&EXPORTS).is_ok_and(|found| found.len() == EXPORTS.len())
}

/// The version of .NET in a file: from the version marker, else from the name of the directory. The marker is not used
/// before .NET 5, whose file version differs from the product version.
pub(super) fn version_of(elf: &Elf, path: &Path) -> Option<String> {
    let marker = marker_version(elf.image()).ok().flatten();
    marker.or_else(|| directory_version(path))
}

/// The version after the marker `@(#)Version`, which the build of the runtime adds to its files.
fn marker_version(image: &Image) -> Result<Option<String>, ParseError> {
    const MARKER: &[u8] = b"@(#)Version ";
    const MAX_VERSION_BYTES: usize = 32;
    const MAX_SEARCHED_BYTES: u64 = 64 << 20;
    const CHUNK_BYTES: u64 = 1 << 20;
    let finder = memchr::memmem::Finder::new(MARKER);
    let end = image.length().min(MAX_SEARCHED_BYTES);
    let mut offset = 0;
    while offset < end {
        let chunk = image.read(offset, CHUNK_BYTES.min(end - offset), CHUNK_BYTES)?;
        if let Some(found) = finder.find(&chunk) {
            let start = offset + (found + MARKER.len()) as u64;
            let text = image.read(start, (MAX_VERSION_BYTES as u64).min(image.length() - start), u64::MAX)?;
            return Ok(product_version(&String::from_utf8_lossy(&text)));
        }
        // The marker can be split between two chunks.
        offset += chunk.len().saturating_sub(MARKER.len() - 1).max(1) as u64;
    }
    Ok(None)
}

/// Converts a file version to the product version: 9.0.725.31616 is 9.0.7. The third number is the patch, followed by two
/// digits of the build year.
fn product_version(file_version: &str) -> Option<String> {
    const FIRST_MAJOR_VERSION: u32 = 5;
    let version = file_version.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor, build) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (major >= FIRST_MAJOR_VERSION).then(|| format!("{major}.{minor}.{}", build / 100))
}

/// The version in a path such as `shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so`.
fn directory_version(path: &Path) -> Option<String> {
    let directory = path.parent()?.file_name()?.to_str()?;
    let is_version = directory.starts_with(|c: char| c.is_ascii_digit()) && directory.contains('.');
    is_version.then(|| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use object::elf::{SHT_DYNSYM, SHT_PROGBITS};
    use profiler_elf_symbols::test_file::{TestFile, function};

    use super::*;

    fn elf(exports: &[&'static str], text: &[u8]) -> Elf {
        let symbols: Vec<_> = exports.iter().map(|name| function(name, 0x1000, 8)).collect();
        let file = TestFile::with_code().symbols(SHT_DYNSYM, &symbols);
        Elf::parse(Image::Memory(file.with(".rodata", SHT_PROGBITS, text.to_vec()).bytes())).unwrap()
    }

    #[test]
    fn a_runtime_is_detected_by_its_exports() {
        for (exports, kind) in [
            (&[CORE_CLR][..], Some(RuntimeKind::CoreClr)),
            (&[CORE_CLR, SINGLE_FILE], Some(RuntimeKind::SingleFile)),
            (&[CORE_CLR, MONO], Some(RuntimeKind::Mono)),
            (&[NATIVE_AOT], Some(RuntimeKind::NativeAot)),
            (&["main"], None),
            (&[], None),
        ] {
            assert_eq!(kind_of(&elf(exports, b"")), kind, "{exports:?}");
        }
    }

    #[test]
    fn code_that_was_compiled_ahead_of_time_is_detected_by_its_section() {
        let file = TestFile::with_code().with("__managedcode", SHT_PROGBITS, vec![0xc3]);
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        assert_eq!(kind_of(&elf), Some(RuntimeKind::NativeAot));
    }

    #[test]
    fn a_jit_compiler_is_detected_by_its_exports() {
        for (exports, expected) in [(&["getJit", "jitStartup"][..], true), (&["getJit"], false), (&[], false)]
        {
            assert_eq!(is_jit_compiler(&elf(exports, b"")), expected, "{exports:?}");
        }
    }

    #[test]
    fn the_version_in_the_file_precedes_that_of_the_directory() {
        let path = Path::new("/usr/share/dotnet/shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so");
        let version = |text: &str, path| version_of(&elf(&[CORE_CLR], text.as_bytes()), path);
        let new = version("\0@(#)Version 9.0.725.31616 @Commit: 3c298d9\0", path);
        assert_eq!(new.as_deref(), Some("9.0.7"));
        let old = version("\0@(#)Version 4.700.22.11601 @Commit: 1\0", path);
        assert_eq!(old.as_deref(), Some("3.1.23"));
        assert_eq!(version("", Path::new("/app/libcoreclr.so")), None);
        for malformed in ["@(#)Version ", "@(#)Version 9", "@(#)Version 9.0.99999999999", "@(#)Version x.y.z"]
        {
            assert_eq!(version(malformed, Path::new("/app/libcoreclr.so")), None, "{malformed}");
        }
    }
}
