//! Which runtime a file brings, by what it exports and not by what it is called or where it is.

use profiler_binary_reader::{Image, ParseError};
use profiler_elf_symbols::Elf;
use std::path::Path;

/// A runtime that managed code is run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// .NET, as a library.
    CoreClr,
    /// .NET, in the program itself.
    SingleFile,
    /// .NET compiled ahead of time: its code is native, and nothing is compiled at run time.
    NativeAot,
    /// Mono, also that of .NET: its names are in perf maps alone.
    Mono,
}

const MONO: &str = "mono_get_root_domain";
const SINGLE_FILE: &str = "DotNetRuntimeInfo";
const CORE_CLR: &str = "coreclr_initialize";
const NATIVE_AOT: &str = "DotNetRuntimeDebugHeader";

/// The runtime in a file, if there is one.
pub(super) fn kind_of(elf: &Elf) -> Option<RuntimeKind> {
    // Mono can be started like .NET's own runtime, and single-file programs have in them what the library has.
    const EXPORTS: [(&str, RuntimeKind); 4] = [
        (MONO, RuntimeKind::Mono),
        (SINGLE_FILE, RuntimeKind::SingleFile),
        (CORE_CLR, RuntimeKind::CoreClr),
        (NATIVE_AOT, RuntimeKind::NativeAot),
    ];
    let exported = elf.find_exports(&EXPORTS.map(|(name, _)| name)).unwrap_or_default();
    EXPORTS.into_iter().find(|(name, _)| exported.contains(name)).map(|(_, kind)| kind)
}

/// The version of .NET in a file: what it says of itself, else what its folder is called. Before .NET 5 the file counts
/// otherwise than the product.
pub(super) fn version_of(elf: &Elf, path: &Path) -> Option<String> {
    let stated = stated_version(elf.image()).ok().flatten();
    stated.or_else(|| folder_version(path))
}

/// The version behind the marker that the runtime's build leaves in its files.
fn stated_version(image: &Image) -> Result<Option<String>, ParseError> {
    const MARKER: &[u8] = b"@(#)Version ";
    const MAX_VERSION_BYTES: usize = 32;
    const MAX_SEARCHED_BYTES: u64 = 64 << 20;
    const PIECE_BYTES: u64 = 1 << 20;
    let finder = memchr::memmem::Finder::new(MARKER);
    let end = image.length().min(MAX_SEARCHED_BYTES);
    let mut at = 0;
    while at < end {
        let piece = image.read(at, PIECE_BYTES.min(end - at), PIECE_BYTES)?;
        if let Some(found) = finder.find(&piece) {
            let start = at + (found + MARKER.len()) as u64;
            let text = image.read(start, (MAX_VERSION_BYTES as u64).min(image.length() - start), u64::MAX)?;
            return Ok(product_version(&String::from_utf8_lossy(&text)));
        }
        // The marker may begin in one piece and end in the next.
        at += piece.len().saturating_sub(MARKER.len() - 1).max(1) as u64;
    }
    Ok(None)
}

/// 9.0.7 for the file version 9.0.725.31616: the patch, then two digits of the year it was built in.
fn product_version(file_version: &str) -> Option<String> {
    const FIRST_THAT_COUNTS_SO: u32 = 5;
    let version = file_version.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor, build) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (major >= FIRST_THAT_COUNTS_SO).then(|| format!("{major}.{minor}.{}", build / 100))
}

/// `shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so`.
fn folder_version(path: &Path) -> Option<String> {
    let folder = path.parent()?.file_name()?.to_str()?;
    let is_version = folder.starts_with(|c: char| c.is_ascii_digit()) && folder.contains('.');
    is_version.then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use object::elf::{SHT_DYNSYM, SHT_PROGBITS};

    use super::*;
    use profiler_elf_symbols::test_file::{TestFile, function};

    fn elf(exports: &[&'static str], text: &[u8]) -> Elf {
        let symbols: Vec<_> = exports.iter().map(|name| function(name, 0x1000, 8)).collect();
        let file = TestFile::with_code().symbols(SHT_DYNSYM, &symbols);
        Elf::parse(Image::Memory(file.with(".rodata", SHT_PROGBITS, text.to_vec()).bytes())).unwrap()
    }

    #[test]
    fn exports_say_which_runtime_a_file_brings() {
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
    fn the_version_is_what_the_file_says_before_what_its_folder_is_called() {
        let path = Path::new("/usr/share/dotnet/shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so");
        let version = |text: &str, path| version_of(&elf(&[CORE_CLR], text.as_bytes()), path);
        let new = version("\0@(#)Version 9.0.725.31616 @Commit: 3c298d9\0", path);
        assert_eq!(new.as_deref(), Some("9.0.7"));
        let old = version("\0@(#)Version 4.700.22.11601 @Commit: 1\0", path);
        assert_eq!(old.as_deref(), Some("3.1.23"));
        assert_eq!(version("", Path::new("/app/libcoreclr.so")), None);
        for lie in ["@(#)Version ", "@(#)Version 9", "@(#)Version 9.0.99999999999", "@(#)Version x.y.z"] {
            assert_eq!(version(lie, Path::new("/app/libcoreclr.so")), None, "{lie}");
        }
    }
}
