//! Tests of names that need other assemblies: those of composite images, and of signatures that refer to another module.
//!
//! No package has a composite image, so the tests build one by hand.

use std::{fs, path::Path};

use profiler_binary_reader::{Image, ParseError};

use super::{super::*, FilesBelow, SMALL};

const TEXT_ADDRESS: u32 = 0x1000;
const TEXT_OFFSET: usize = 0x200;

/// A PE file for this machine with one code section.
struct TestPe(Vec<u8>);

impl TestPe {
    fn new() -> Self {
        const PE32_PLUS: u16 = 0x20b;
        let mut pe = Self(SMALL[..TEXT_OFFSET].to_vec());
        let optional = 0x58;
        pe.0[optional..optional + 2].copy_from_slice(&PE32_PLUS.to_le_bytes());
        let (exports, managed) = (optional + 112, optional + 112 + 14 * 8);
        pe.0[exports..exports + 8].copy_from_slice(&words(&[0x1000, 40]));
        pe.0[managed..managed + 8].fill(0);
        pe.set_text_bytes(0x1000);
        pe
    }

    fn set_text_bytes(&mut self, bytes: u32) {
        self.0.resize(TEXT_OFFSET + bytes as usize, 0);
        self.0[0x150..0x15c].copy_from_slice(&words(&[bytes, TEXT_ADDRESS, bytes]));
    }

    fn put(&mut self, address: u32, bytes: &[u8]) {
        let at = TEXT_OFFSET + (address - TEXT_ADDRESS) as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The metadata of a manifest with these assembly references.
fn manifest(names: [&str; 2]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut rows = Vec::new();
    for name in names {
        rows.extend([0; 14]);
        rows.extend((strings.len() as u16).to_le_bytes());
        rows.extend([0; 4]);
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let tables =
        [&[0, 0, 0, 0, 2, 0, 0, 1][..], &(1_u64 << 0x23).to_le_bytes(), &[0; 8], &words(&[2]), &rows];
    let tables = tables.concat();
    let start = 0x38;
    let end = start + tables.len() as u32;
    let root =
        [b"BSJB\x01\0\x01\0\0\0\0\0\x04\0\0\0v4\0\0\0\0\x02\0", &words(&[start, tables.len() as u32])[..]];
    let root =
        [&root.concat()[..], b"#~\0\0", &words(&[end, strings.len() as u32]), b"#Strings\0\0\0\0"].concat();
    assert_eq!(root.len(), start as usize);
    [root, tables, strings].concat()
}

/// A composite image of the assemblies `Test` and `Tent`, with a method of each, and an instance of a method of a generic
/// type.
fn composite() -> TestPe {
    let mut pe = TestPe::new();
    pe.put(0x1000 + 24, &words(&[1, 0x1030, 0x1034, 0x1038]));
    pe.put(0x1030, &words(&[0x1100, 0x1040]));
    pe.put(0x1040, b"RTR_HEADER\0");
    let manifest = manifest(["Test", "Tent"]);
    pe.put(0x1100, b"RTR\0\x06\0\x03\0");
    pe.put(0x1108, &words(&[0, 5, 102, 0x1200, 36, 109, 0x1240, 15, 112, 0x1400, manifest.len() as u32]));
    pe.put(0x1108 + 44, &words(&[115, 0x1280, 32, 118, 0x1380, 32]));
    let functions = [[0x1800, 0x1810, 0], [0x1810, 0x1820, 0], [0x1820, 0x1830, 0]];
    pe.put(0x1200, &words(functions.as_flattened()));
    // In the context of module 3: the second method of `Inner`1[int32]`, in function 2.
    pe.put(0x1240, &[0, 2, 4, 0x99, 2, 0x80, 0xc0, 3, 0x15, 0x11, 0x0c, 1, 0x08, 2, 2 << 2]);
    pe.put(0x1280, &words(&[0, 0, 0x12a0, 20, 0, 0, 0x12c0, 20]));
    for (core, table, function) in [(0x12a0, 0x1300, 0), (0x12c0, 0x1310, 1)] {
        pe.put(core, &words(&[0, 1, 103, table, 4]));
        pe.put(table, &[8, 1, 0, function << 2]);
    }
    pe.put(0x1400, &manifest);
    pe
}

/// A folder with a copy of the small image for each assembly name.
fn folder(assemblies: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for assembly in assemblies {
        let mut image = SMALL.to_vec();
        let name = memchr::memmem::find(&image, b"\0Test\0").unwrap() + 1;
        image[name..name + 4].copy_from_slice(&assembly.as_bytes()[..4]);
        fs::write(folder.path().join(format!("{assembly}.dll")), image).unwrap();
    }
    folder
}

fn name_at(image: &[u8], folder: &tempfile::TempDir, address: u64) -> Result<String, NameError> {
    let location = AssemblyLocation::from_image_path(Path::new("/image.dll"));
    let mut module = ReadyToRunModule::open(Image::Memory(image.to_vec()), location, &Arc::default())?;
    let named = module.symbolize(ElfAddress(address), &FilesBelow(folder.path().to_owned()))?;
    Ok(named.name.into_owned())
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_of_a_composite_image_has_the_names_of_its_components() {
    let (image, folder) = (composite().0, folder(&["Test", "Tent"]));
    let name = |address| name_at(&image, &folder, address);
    assert_eq!(name(0x1800).unwrap(), "Test!N.Outer.Run(int32)");
    assert_eq!(name(0x1815).unwrap(), "Tent!N.Outer.Run(int32)");
    assert_eq!(name(0x1820).unwrap(), "Tent!N.Outer+Inner`1[System.Int32].Get(!0,class N.Other)");
    assert_eq!(name(0x1830), Err(NameError::NoMethod));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn before_version_6_3_the_manifest_itself_has_no_index() {
    let (mut pe, folder) = (composite(), folder(&["Test", "Tent"]));
    pe.put(0x1100, b"RTR\0\x05\0\x04\0");
    pe.put(0x1247, &[2]);
    assert_eq!(name_at(&pe.0, &folder, 0x1800).unwrap(), "Test!N.Outer.Run(int32)");
    assert_eq!(name_at(&pe.0, &folder, 0x1815).unwrap(), "Tent!N.Outer.Run(int32)");
    assert!(name_at(&pe.0, &folder, 0x1820).unwrap().starts_with("Tent!N.Outer+Inner`1"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_missing_component_affects_its_own_names_only() {
    let (image, folder) = (composite().0, folder(&["Test"]));
    assert!(name_at(&image, &folder, 0x1800).is_ok());
    assert_eq!(name_at(&image, &folder, 0x1810), Err(NameError::AssemblyMissing));
    fs::write(folder.path().join("Tent.dll"), "no image").unwrap();
    assert_eq!(name_at(&image, &folder, 0x1810), Err(NameError::ParseError(ParseError::Malformed)));
}

/// Files below a root directory, and the paths of the accepted ones.
struct RecordedFiles(FilesBelow, std::cell::RefCell<Vec<std::path::PathBuf>>);

impl AssemblyFiles for RecordedFiles {
    fn open(&self, path: &Path) -> Option<Image> {
        self.0.open(path)
    }

    fn accepted(&self, path: &Path, image: &Image) {
        assert!(image.length() > 0);
        self.1.borrow_mut().push(path.to_owned());
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_file_is_accepted_only_if_it_is_the_assembly_of_the_name() {
    let image = composite().0;
    let accepted = |folder: &tempfile::TempDir, address| {
        let files = RecordedFiles(FilesBelow(folder.path().to_owned()), std::cell::RefCell::default());
        let location = AssemblyLocation::from_image_path(Path::new("/image.dll"));
        let module = ReadyToRunModule::open(Image::Memory(image.clone()), location, &Arc::default());
        let _ = module.unwrap().symbolize(ElfAddress(address), &files);
        files.1.into_inner()
    };
    let folder = folder(&["Test", "Tent"]);
    assert_eq!(accepted(&folder, 0x1810), [Path::new("/Tent.dll")]);
    fs::copy(folder.path().join("Test.dll"), folder.path().join("Tent.dll")).unwrap();
    assert!(accepted(&folder, 0x1810).is_empty(), "another assembly");
    fs::write(folder.path().join("Tent.dll"), "root:secret").unwrap();
    assert!(accepted(&folder, 0x1810).is_empty(), "no assembly");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_component_of_another_build_is_not_used() {
    let (mut pe, folder) = (composite(), folder(&["Test", "Tent"]));
    pe.put(0x1390, &[7; 16]);
    assert!(name_at(&pe.0, &folder, 0x1800).is_ok());
    // The small image has no module version id.
    assert_eq!(name_at(&pe.0, &folder, 0x1810), Err(NameError::ParseError(ParseError::Malformed)));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_type_of_another_module_has_the_name_from_that_module() {
    let mut image = SMALL.to_vec();
    // The type argument of `Inner`1` becomes the second type of the first referenced assembly.
    image[0x2f9..0x300].copy_from_slice(&[1, 0x3f, 1, 0x12, 2 << 2, 2, 8]);
    image[0x28c..0x290].copy_from_slice(&words(&[16]));
    let get = "Test!N.Outer+Inner`1[N.Outer].Get(!0,class N.Other)";
    assert_eq!(name_at(&image, &folder(&["Elsewhere"]), 0x1130).unwrap(), get);
    assert_eq!(name_at(&image, &folder(&[]), 0x1130), Err(NameError::AssemblyMissing));
}

#[test]
fn a_truncated_or_damaged_composite_image_does_not_panic() {
    let (image, folder) = (composite().0, folder(&["Test", "Tent"]));
    for position in (0x40..0x170).chain(0x200..0x4a0).chain(0x600..0x6a0) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = image.clone();
            changed[position] = value;
            let _ = name_at(&changed, &folder, 0x1820);
        }
    }
    for length in (0..image.len()).step_by(16) {
        let _ = name_at(&image[..length], &folder, 0x1820);
    }
}

#[test]
fn a_composite_image_with_too_many_components_is_too_large() {
    let (mut pe, folder) = (composite(), folder(&[]));
    pe.set_text_bytes(0x20_0000);
    pe.put(0x1108 + 44, &words(&[115, 0x1280, 0x10_0000]));
    assert_eq!(name_at(&pe.0, &folder, 0x1800), Err(NameError::ParseError(ParseError::TooLarge)));
}
