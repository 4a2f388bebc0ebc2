//! Reads single-file .NET programs: ELF files with appended assemblies and a manifest that lists them.
//!
//! Source: dotnet/runtime, `src/native/corehost/bundle` and `src/native/corehost/apphost/bundle_marker.cpp`.

use profiler_addresses::FileOffset;
use profiler_binary_reader::{ByteCursor, Image, ParseError, WorkBudget};

/// The bytes after the offset of the manifest, in the data section of every host of .NET programs: the SHA-256 of
/// `.net core bundle\n`.
const MARKER: [u8; 32] = [
    0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32, 0x13,
    0xf5, 0xb9, 0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
];

/// Bytes of initialized data that are searched for the marker. The host with the whole runtime has 160 KB.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;

/// Bytes that the search reads at once.
const SEARCH_CHUNK_BYTES: u64 = 256 << 10;

/// Size of the largest manifest that is read. Those of the largest programs have about 50 KB.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// What a byte of the manifest costs of the budget for reading: the decoded entries take more memory.
const MANIFEST_COST: u64 = 4;

/// The first version of the manifest with the compressed size of each file.
const VERSION_WITH_COMPRESSION: u32 = 6;

/// The assemblies of a single-file program.
#[derive(Debug)]
pub struct Bundle {
    image: Image,
    /// Those that are not compressed, sorted by offset.
    assemblies: Vec<Assembly>,
    /// The number of compressed assemblies. The runtime unpacks them into memory, so no mapping of the file has them.
    pub compressed: usize,
}

/// An assembly in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// Its offset in the file.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// Its path in the bundle.
    pub path: String,
}

impl Bundle {
    /// Reads the bundle of an ELF file, if it has one. `variables` are the offsets and sizes of its sections with
    /// initialized data. `budget` is that of all symbols and debug information.
    ///
    /// # Errors
    /// [`ParseError`] when the manifest contradicts itself or exceeds a limit.
    pub fn read(
        image: &Image,
        variables: impl Iterator<Item = (FileOffset, u64)>,
        budget: &WorkBudget,
    ) -> Result<Option<Self>, ParseError> {
        let Some(marker) = find_marker(image, variables, budget)? else { return Ok(None) };
        let mut before = [0; 8];
        image.read_into(marker.saturating_sub(before.len() as u64), &mut before)?;
        // The offset is 0 in a host without a bundle.
        let manifest = u64::from_le_bytes(before);
        if manifest == 0 {
            return Ok(None);
        }
        let bytes =
            image.length().checked_sub(manifest).ok_or(ParseError::Malformed)?.min(MAX_MANIFEST_BYTES);
        spend(budget, bytes * MANIFEST_COST)?;
        let entries = read_manifest(&image.read(manifest, bytes, MAX_MANIFEST_BYTES)?)?;
        let compressed = entries.iter().filter(|entry| entry.is_compressed).count();
        let is_in_file = |file: &Assembly| image.part(file.start, file.bytes).is_ok();
        let plain = entries.into_iter().filter(|entry| !entry.is_compressed).map(|entry| entry.assembly);
        let mut assemblies: Vec<_> = plain.filter(is_in_file).collect();
        assemblies.sort_by_key(|assembly| assembly.start);
        let image = image.part(0, image.length())?;
        Ok(Some(Self { image, assemblies, compressed }))
    }

    /// The assembly with the byte at an offset of the file.
    pub fn assembly_at(&self, offset: FileOffset) -> Option<&Assembly> {
        let after = self.assemblies.partition_point(|assembly| assembly.start <= offset.0);
        let assembly = self.assemblies.get(after.checked_sub(1)?)?;
        (offset.0 - assembly.start < assembly.bytes).then_some(assembly)
    }

    /// The assembly at a path in the bundle.
    pub fn assembly_named(&self, path: &str) -> Option<&Assembly> {
        self.assemblies.iter().find(|assembly| assembly.path == path)
    }

    /// The number of uncompressed assemblies.
    pub fn len(&self) -> usize {
        self.assemblies.len()
    }

    /// Whether there is no uncompressed assembly.
    pub fn is_empty(&self) -> bool {
        self.assemblies.is_empty()
    }

    /// The bytes of an assembly.
    ///
    /// # Errors
    /// [`ParseError`] when the assembly is outside of the file.
    pub fn image_of(&self, assembly: &Assembly) -> Result<Image, ParseError> {
        self.image.part(assembly.start, assembly.bytes)
    }
}

fn spend(budget: &WorkBudget, bytes: u64) -> Result<(), ParseError> {
    if budget.spend_on_reading(bytes) { Ok(()) } else { Err(ParseError::TooLarge) }
}

/// The offset of the marker in the file.
fn find_marker(
    image: &Image,
    variables: impl Iterator<Item = (FileOffset, u64)>,
    budget: &WorkBudget,
) -> Result<Option<u64>, ParseError> {
    let finder = memchr::memmem::Finder::new(&MARKER);
    let mut left_bytes = MAX_SEARCHED_BYTES;
    for (start, bytes) in variables {
        let end = start.0.saturating_add(bytes.min(left_bytes)).min(image.length());
        let mut at = start.0;
        while end.saturating_sub(at) >= MARKER.len() as u64 {
            let bytes = SEARCH_CHUNK_BYTES.min(end - at);
            spend(budget, bytes)?;
            let chunk = image.read(at, bytes, SEARCH_CHUNK_BYTES)?;
            if let Some(found) = finder.find(&chunk) {
                return Ok(Some(at + found as u64));
            }
            // The marker may cross the boundary of two chunks.
            at += chunk.len().saturating_sub(MARKER.len() - 1).max(1) as u64;
        }
        left_bytes = left_bytes.saturating_sub(bytes);
    }
    Ok(None)
}

struct Entry {
    assembly: Assembly,
    is_compressed: bool,
}

/// Decodes the manifest. Its length bounds the number of entries.
fn read_manifest(bytes: &[u8]) -> Result<Vec<Entry>, ParseError> {
    const BYTES_SINCE_VERSION_2: usize = 40;
    let mut fields = ByteCursor::new(bytes, 0);
    let (version, _minor, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
    read_string(&mut fields, bytes)?;
    fields.skip(if version >= 2 { BYTES_SINCE_VERSION_2 } else { 0 });
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.extend(read_entry(&mut fields, bytes, version)?);
    }
    Ok(entries)
}

/// Decodes an entry. `None` is a file that is no assembly.
fn read_entry(fields: &mut ByteCursor<'_>, bytes: &[u8], version: u32) -> Result<Option<Entry>, ParseError> {
    const ASSEMBLY: u8 = 1;
    let (start, size) = (fields.u64()?, fields.u64()?);
    let compressed_bytes = if version >= VERSION_WITH_COMPRESSION { fields.u64()? } else { 0 };
    let kind = fields.u8()?;
    let path = read_string(fields, bytes)?;
    let assembly = Assembly { start, bytes: size, path: String::from_utf8_lossy(path).into_owned() };
    Ok((kind == ASSEMBLY).then_some(Entry { assembly, is_compressed: compressed_bytes != 0 }))
}

/// Reads a string after its length, which is an LEB128 number.
fn read_string<'a>(fields: &mut ByteCursor<'_>, bytes: &'a [u8]) -> Result<&'a [u8], ParseError> {
    const MAX_LENGTH_BITS: u32 = 14;
    let mut length = 0;
    for shift in (0..MAX_LENGTH_BITS).step_by(7) {
        let byte = fields.u8()?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let start = fields.position();
            fields.skip(length);
            return bytes.get(start..start.saturating_add(length)).ok_or(ParseError::Malformed);
        }
    }
    Err(ParseError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readytorun::tests::random_bytes;
    use profiler_elf_symbols::{Elf, test_file::TestFile};

    /// Builds a program with a bundle of these assemblies: path, bytes, whether they are marked as compressed.
    fn program(assemblies: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let variables = [&[0; 24][..], &MARKER, &[7; 9]].concat();
        let mut bytes = TestFile::with_code().variables(variables).bytes();
        let mut entries = Vec::new();
        for (path, contents, is_compressed) in assemblies {
            bytes.extend([0x55; 3]);
            let packed_bytes = if *is_compressed { contents.len() as u64 } else { 0 };
            let numbers = [bytes.len() as u64, contents.len() as u64, packed_bytes];
            entries.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
            entries.extend([1, path.len() as u8]);
            entries.extend(path.as_bytes());
            bytes.extend(*contents);
        }
        let manifest = bytes.len() as u64;
        for number in [6, 0, assemblies.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"\x04name");
        bytes.extend([0; 40]);
        bytes.extend(entries);
        let marker = position_of_marker(&bytes);
        bytes[marker - 8..marker].copy_from_slice(&manifest.to_le_bytes());
        bytes
    }

    fn position_of_marker(bytes: &[u8]) -> usize {
        memchr::memmem::find(bytes, &MARKER).unwrap()
    }

    fn read(bytes: Vec<u8>) -> Result<Option<Bundle>, ParseError> {
        let elf = Elf::parse(Image::Memory(bytes)).unwrap();
        Bundle::read(elf.image(), elf.writable_data(), &WorkBudget::default())
    }

    const TWO: [(&str, &[u8], bool); 2] = [("A.dll", b"aaaa", false), ("cs/B.dll", b"bb", false)];

    #[test]
    fn an_offset_belongs_to_the_assembly_that_has_its_byte() {
        let bytes = program(&TWO);
        let bundle = read(bytes.clone()).unwrap().unwrap();
        for (path, contents, _) in TWO {
            let found = bundle.assembly_named(path).unwrap();
            assert_eq!(bundle.image_of(found).unwrap().read(0, found.bytes, 10).unwrap(), contents);
            let at = |offset| bundle.assembly_at(FileOffset(offset)).map(|found| &*found.path);
            assert_eq!(at(found.start), Some(path));
            assert_eq!(at(found.start + found.bytes - 1), Some(path));
            assert_ne!(at(found.start + found.bytes), Some(path));
            assert_ne!(at(found.start - 1), Some(path));
        }
        assert_eq!(bundle.assembly_at(FileOffset(0)), None);
        assert_eq!(bundle.assembly_at(FileOffset(u64::MAX)), None);
        assert_eq!(bundle.assembly_named("B.dll"), None);
    }

    #[test]
    fn compressed_assemblies_have_no_offset_in_the_file() {
        let bundle = read(program(&[("A.dll", b"aaaa", true), TWO[1]])).unwrap().unwrap();
        assert_eq!((bundle.len(), bundle.compressed), (1, 1));
        assert_eq!(bundle.assembly_named("A.dll"), None);
    }

    #[test]
    fn a_program_without_a_manifest_has_no_bundle() {
        let mut bytes = program(&TWO);
        let marker = position_of_marker(&bytes);
        bytes[marker - 8..marker].fill(0);
        assert!(read(bytes).unwrap().is_none());
        assert!(read(TestFile::typical().bytes()).unwrap().is_none());
    }

    #[test]
    fn data_beyond_the_end_of_the_file_has_no_marker() {
        const OFFSET: usize = 8;
        let mut bytes = program(&TWO);
        let headers = usize::try_from(u64::from_le_bytes(bytes[0x20..0x28].try_into().unwrap())).unwrap();
        bytes[headers + OFFSET..headers + OFFSET + 8].copy_from_slice(&(u64::MAX - 5).to_le_bytes());
        assert!(read(bytes).unwrap().is_none());
    }

    #[test]
    fn the_marker_is_found_across_a_chunk_boundary() {
        for before in [SEARCH_CHUNK_BYTES - 20, SEARCH_CHUNK_BYTES, 2 * SEARCH_CHUNK_BYTES - 31] {
            let variables = [&vec![0; before as usize][..], &MARKER].concat();
            let bytes = TestFile::with_code().variables(variables).bytes();
            let expected = position_of_marker(&bytes) as u64;
            let elf = Elf::parse(Image::Memory(bytes)).unwrap();
            assert_eq!(
                find_marker(elf.image(), elf.writable_data(), &WorkBudget::default()),
                Ok(Some(expected))
            );
            assert_eq!(
                find_marker(elf.image(), elf.writable_data(), &WorkBudget::with_work_limit(before)),
                Err(ParseError::TooLarge)
            );
        }
    }

    #[test]
    fn a_wrong_manifest_entry_affects_that_entry_only() {
        let bytes = program(&TWO);
        let marker = position_of_marker(&bytes);
        let manifest = u64::from_le_bytes(bytes[marker - 8..marker].try_into().unwrap()) as usize;
        let entry = manifest + 12 + 5 + 40;
        let changed = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            read(bytes)
        };
        assert_eq!(changed(marker - 8, &[0xff; 8]).err(), Some(ParseError::Malformed), "beyond the end");
        assert_eq!(changed(manifest + 8, &[0xff; 4]).err(), Some(ParseError::Malformed), "files without end");
        assert_eq!(
            changed(manifest + 12, &[0xff; 2]).err(),
            Some(ParseError::TooLarge),
            "a name without end"
        );
        for field in [entry, entry + 8] {
            let bundle = changed(field, &[0xff; 8]).unwrap().unwrap();
            assert_eq!(bundle.len(), 1, "an assembly that is not in the file");
        }
        // The first assembly overlaps those after it.
        let bundle = changed(entry + 8, &8_u64.to_le_bytes()).unwrap().unwrap();
        let second = bundle.assembly_named("cs/B.dll").unwrap().start;
        assert_eq!(bundle.assembly_at(FileOffset(second)).unwrap().path, "cs/B.dll");
    }

    #[test]
    fn damaged_and_random_manifests_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(3);
        let bytes = program(&TWO);
        let marker = position_of_marker(&bytes);
        let manifest = u64::from_le_bytes(bytes[marker - 8..marker].try_into().unwrap()) as usize;
        for position in manifest..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[position] = value;
                let _ = read(changed);
            }
            let _ = read(bytes[..position].to_vec());
        }
        for _ in 0..5_000 {
            let _ = read_manifest(&random_bytes(&mut random, 200)).map(|entries| entries.len());
        }
    }

    #[test]
    fn a_program_of_ten_gigabytes_is_read_in_parts() {
        use std::io::{Seek, SeekFrom, Write};

        const MANIFEST_AT: u64 = 10 << 30;
        let mut bytes = program(&TWO);
        let marker = position_of_marker(&bytes);
        let manifest = u64::from_le_bytes(bytes[marker - 8..marker].try_into().unwrap()) as usize;
        bytes[marker - 8..marker].copy_from_slice(&MANIFEST_AT.to_le_bytes());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start(MANIFEST_AT)).unwrap();
        file.write_all(&bytes[manifest..]).unwrap();
        let elf = Elf::parse(Image::from_file(file).unwrap()).unwrap();
        assert_eq!(
            Bundle::read(elf.image(), elf.writable_data(), &WorkBudget::default()).unwrap().unwrap().len(),
            2
        );
    }
}
