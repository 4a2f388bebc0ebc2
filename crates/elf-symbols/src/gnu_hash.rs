//! The hash table of dynamic symbols (`.gnu.hash`): whether a file can have a symbol, without reading all symbols.
//!
//! A header, a Bloom filter, the first symbol of each bucket, and the hashes of all symbols in the order of the symbol table,
//! where the lowest bit marks the last one of a bucket (glibc, `elf/dl-lookup.c`, `do_lookup_x`).

use object::elf;
use profiler_binary_reader::{Image, ParseError};

use crate::{header::LE, section::Sections};

/// The table of a file.
pub(crate) struct GnuHashTable<'a> {
    image: &'a Image,
    buckets: u32,
    /// The index of the first symbol with a hash.
    first_symbol: u32,
    /// The file offset of the buckets.
    buckets_offset: u64,
}

impl<'a> GnuHashTable<'a> {
    /// `None` when the file has no such table.
    pub(crate) fn read(image: &'a Image, sections: &Sections) -> Result<Option<Self>, ParseError> {
        const HEADER_BYTES: u64 = 16;
        const BLOOM_WORD_BYTES: u64 = 8;
        let Some(section) = sections.find_type(elf::SHT_GNU_HASH).filter(|section| section.is_stored())
        else {
            return Ok(None);
        };
        if section.is_compressed()? {
            return Err(ParseError::Malformed);
        }
        let offset = section.header().sh_offset.get(LE);
        let header = (0..3).map(|index| word(image, offset, index)).collect::<Result<Vec<_>, _>>()?;
        let &[buckets, first_symbol, bloom_words] = header.as_slice() else {
            return Err(ParseError::Malformed);
        };
        let buckets_offset = offset.checked_add(HEADER_BYTES + u64::from(bloom_words) * BLOOM_WORD_BYTES);
        let buckets_offset = buckets_offset.ok_or(ParseError::Malformed)?;
        Ok(Some(Self { image, buckets, first_symbol, buckets_offset }))
    }

    /// Whether a symbol has the hash of a name.
    pub(crate) fn contains_hash_of(&self, name: &str) -> Result<bool, ParseError> {
        /// Buckets have a few symbols. A longer one is treated as if it had the hash.
        const MAX_COMPARED: u64 = 256;
        let hash = elf::gnu_hash(name.as_bytes());
        let bucket = hash.checked_rem(self.buckets).ok_or(ParseError::Malformed)?;
        let symbol = word(self.image, self.buckets_offset, bucket.into())?;
        // An empty bucket is 0.
        let Some(first) = symbol.checked_sub(self.first_symbol) else { return Ok(false) };
        for index in (u64::from(self.buckets) + u64::from(first)..).take(MAX_COMPARED as usize) {
            let found = word(self.image, self.buckets_offset, index)?;
            if found | 1 == hash | 1 {
                return Ok(true);
            }
            if found & 1 != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads one number of an array of them.
fn word(image: &Image, array_offset: u64, index: u64) -> Result<u32, ParseError> {
    let mut bytes = [0; 4];
    let offset = array_offset.checked_add(index * bytes.len() as u64).ok_or(ParseError::Malformed)?;
    image.read_into(offset, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf};

    use super::*;
    use crate::{elf::Elf, test_file::TestFile};

    fn c_library() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().last());
        paths.find(|path| path.contains("/libc.so")).expect("this test is linked to the C library").into()
    }

    fn contains(elf: &Elf, name: &str) -> Option<Result<bool, ParseError>> {
        let sections = elf.sections().unwrap();
        let table = GnuHashTable::read(elf.image(), &sections).ok()??;
        Some(table.contains_hash_of(name))
    }

    #[test]
    fn functions_of_the_c_library_are_found_and_others_are_not() {
        let elf = Elf::parse(Image::from_file(File::open(c_library()).unwrap()).unwrap()).unwrap();
        for name in ["malloc", "printf", "pthread_create", "qsort"] {
            assert_eq!(contains(&elf, name), Some(Ok(true)), "{name}");
            assert_eq!(elf.find_exports(&[name]), Ok(vec![name]));
        }
        for name in ["coreclr_initialize", "mono_get_root_domain", "DotNetRuntimeInfo", "mallocs", ""] {
            assert_eq!(contains(&elf, name), Some(Ok(false)), "{name}");
            assert_eq!(elf.find_exports(&[name]), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_malformed_table_is_an_error_and_a_long_bucket_ends() {
        let file = |words: &[u32]| {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            Elf::parse(Image::Memory(
                TestFile::with_code().with(".gnu.hash", elf::SHT_GNU_HASH, bytes).bytes(),
            ))
            .unwrap()
        };
        let no_buckets = [0, 0, 0, 0];
        assert_eq!(contains(&file(&no_buckets), "main"), Some(Err(ParseError::Malformed)));
        let bloom_filter_beyond_the_file = [1, 0, u32::MAX, 0];
        assert_eq!(contains(&file(&bloom_filter_beyond_the_file), "main"), Some(Err(ParseError::Malformed)));
        let endless_bucket = [&[1, 0, 0, 0, 0][..], &[2; 300]].concat();
        assert_eq!(contains(&file(&endless_bucket), "main"), Some(Ok(true)));
        let one_other_symbol = [1, 0, 0, 0, 0, 3];
        assert_eq!(contains(&file(&one_other_symbol), "main"), Some(Ok(false)));
    }
}
