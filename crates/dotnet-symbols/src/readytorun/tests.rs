//! Tests of the names in a small image, valid and damaged. The package `profiler-tests` has tests with real libraries.

mod composite;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use profiler_addresses::FileOffset;
use profiler_binary_reader::{Image, ParseError};

use super::*;

/// Files below a root directory.
pub(super) struct FilesBelow(pub(super) PathBuf);

impl AssemblyFiles for FilesBelow {
    fn open(&self, path: &Path) -> Option<Image> {
        Image::from_file(File::open(self.0.join(path.strip_prefix("/").ok()?)).ok()?).ok()
    }
}

fn files() -> FilesBelow {
    FilesBelow("/".into())
}

/// Returns fewer than `limit` random bytes.
pub(super) fn random_bytes(random: &mut fastrand::Rng, limit: usize) -> Vec<u8> {
    let length = random.usize(..limit);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// An image with a method of two functions at 0x1100, and a method of a generic type at 0x1130.
pub(super) const SMALL: &[u8] = include_bytes!("../../testdata/small.dll");

fn name_at(bytes: &[u8], address: u64) -> Result<String, NameError> {
    let location = AssemblyLocation::from_image_path(Path::new("/app/Test.dll"));
    let mut module = ReadyToRunModule::open(Image::Memory(bytes.to_vec()), location, &Arc::default())?;
    let named = module.symbolize(ElfAddress(address), &files())?;
    Ok(named.name.into_owned())
}

fn changed(position: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = SMALL.to_vec();
    image[position..position + bytes.len()].copy_from_slice(bytes);
    image
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_address_has_the_name_of_the_method_whose_function_contains_it() {
    let name = |address| name_at(SMALL, address);
    let run = "Test!N.Outer.Run(int32)";
    assert_eq!(name(0x1100).unwrap(), run);
    assert_eq!(name(0x111f).unwrap(), run);
    assert_eq!(name(0x1127).unwrap(), run, "an exception handler belongs to its method");
    let get = "Test!N.Outer+Inner`1[System.Int32].Get(!0,class N.Other)";
    assert_eq!(name(0x1130).unwrap(), get);
    assert_eq!(name(0x10e4).unwrap(), "stub DelayLoadThunk");
    for address in [0, 0x10ff, 0x1128, 0x112f, 0x1140, u64::MAX] {
        assert_eq!(name(address), Err(NameError::NoMethod));
    }
}

/// An image as a loader puts it into memory: each section at its address.
fn loaded(file: &[u8]) -> Vec<u8> {
    let mut image = PagedImage::new(Image::Memory(file.to_vec()), Arc::default()).unwrap();
    let layout = Pe::read(&mut image).unwrap().layout();
    let mut memory = file[..0x200].to_vec();
    memory.resize(0x4000, 0);
    for address in 0x1000..0x4000 {
        let place = layout.rest_from(ElfAddress(address));
        if let Some(byte) = place.and_then(|(FileOffset(offset), _)| file.get(offset as usize)) {
            memory[address as usize] = *byte;
        }
    }
    memory
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_image_in_memory_has_the_names_of_its_file() {
    let open = |bytes: Vec<u8>| {
        let location = AssemblyLocation::from_image_path(Path::new("/app/Test.dll"));
        ReadyToRunModule::open_loaded(Image::Memory(bytes), location, &Arc::default()).unwrap()
    };
    let mut module = open(loaded(SMALL));
    for address in [0x1100, 0x1127, 0x1130, 0x10e4, 0x10ff, 0x1128] {
        let name = module.symbolize(ElfAddress(address), &files()).map(|named| named.name.into_owned());
        assert_eq!(name, name_at(SMALL, address), "{address:x}");
    }
    assert_eq!(module.function_range(ElfAddress(0x1127)), Ok(ElfAddress(0x1120)..ElfAddress(0x1128)));
    assert_eq!(module.function_range(ElfAddress(0x1128)), Err(NameError::NoMethod));
    assert!(module.cached_bytes() > 0);
    assert!(name_at(&loaded(SMALL), 0x1130).is_err(), "in the layout of the file it is another image");
}

#[test]
fn an_address_of_the_image_is_derived_from_the_file_offset() {
    let location = AssemblyLocation::from_image_path(Path::new("/app/Test.dll"));
    let module = ReadyToRunModule::open(Image::Memory(SMALL.to_vec()), location, &Arc::default()).unwrap();
    let mapping = |offset| FileMapping { start: RuntimeAddress(0x7000), offset: FileOffset(offset) };
    let address = |offset, distance: u64| module.address(mapping(offset), RuntimeAddress(0x7000 + distance));
    assert_eq!(address(0, 0x310), Some(ElfAddress(0x1110)));
    assert_eq!(address(0x200, 0x110), Some(ElfAddress(0x1110)));
    assert_eq!(address(0, 0x1ff), None, "in no section");
    assert_eq!(address(0x600, 0), None);
    assert_eq!(module.address(mapping(0), RuntimeAddress(0x6fff)), None);
    assert_eq!(address(u64::MAX, 1), None);
}

#[test]
fn an_image_without_code_for_this_machine_is_not_precompiled() {
    assert_eq!(
        name_at(&changed(0x44, &[0x64, 0x86]), 0x1100),
        Err(NameError::NotPrecompiled),
        "another operating system"
    );
    assert_eq!(name_at(&changed(0x240, &[0; 8]), 0x1100), Err(NameError::NotPrecompiled), "not precompiled");
    assert_eq!(
        name_at(&changed(0x250, b"NGEN"), 0x1100),
        Err(NameError::NotPrecompiled),
        "another kind of header"
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_image_that_contradicts_itself_is_malformed_or_too_large() {
    for (position, bytes) in [
        (0x40, &b"XX"[..]),      // no PE header
        (0x3c, &[0xff; 4]),      // the PE header is beyond the end
        (0x138, &[0xff; 4]),     // the managed header is beyond the end
        (0x25c, &[0xff; 4]),     // too many sections
        (0x400, b"none"),        // no metadata
        (0x4a8 + 8, &[0xff; 2]), // a name outside of the heap
        (0x460, &[0xff; 4]),     // too many rows
    ] {
        let found = name_at(&changed(position, bytes), 0x1100).unwrap_err();
        assert!(
            matches!(
                found,
                NameError::ParseError(ParseError::Malformed) | NameError::ParseError(ParseError::TooLarge)
            ),
            "{position:x}: {found:?}"
        );
    }
    // A type that is nested in itself.
    assert_eq!(
        name_at(&changed(0x4ee, &[3, 0, 3, 0]), 0x1130),
        Err(NameError::ParseError(ParseError::TooLarge))
    );
}

#[test]
fn a_truncated_or_damaged_image_does_not_panic() {
    for length in 0..SMALL.len() {
        let _ = name_at(&SMALL[..length], 0x1130);
    }
    for position in 0..SMALL.len() {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
            for address in [0x1104, 0x1130] {
                let _ = name_at(&changed(position, &[value]), address);
            }
        }
    }
}
