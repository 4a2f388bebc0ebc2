//! The GNU build id (`NT_GNU_BUILD_ID`), from the notes of segments or sections.

use std::fmt;

use object::{
    LittleEndian,
    elf::{self, FileHeader64},
    read::elf::NoteIterator,
};

use profiler_binary_reader::{Image, ParseError};

use crate::{
    header::{LE, ProgramHeader},
    section::Sections,
};

/// A SHA-1 has 20 bytes. No linker writes more than a SHA-512.
const MAX_BUILD_ID_BYTES: usize = 64;

/// Notes of real files are a few hundred bytes.
const MAX_NOTES_BYTES: u64 = 1 << 20;

/// The build id, which a file and its debug file share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// A build id; `None` when `bytes` is empty or longer than 64 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=MAX_BUILD_ID_BYTES).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lower-case hexadecimal, as in the names of debug files.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Finds the build id in the note segments.
pub(crate) fn in_segments(image: &Image, programs: &[ProgramHeader]) -> Option<BuildId> {
    let notes = programs.iter().filter(|program| program.p_type.get(LE) == elf::PT_NOTE);
    notes
        .filter_map(|program| {
            let bytes = image.read(program.p_offset.get(LE), program.p_filesz.get(LE), MAX_NOTES_BYTES);
            find_in_notes(&bytes.ok()?, program.p_align.get(LE)).ok().flatten()
        })
        .next()
}

/// Whether the note segments have the build id of Go's linker (`ELF_NOTE_GO_NAME` in `cmd/link/internal/ld/elf.go`).
pub(crate) fn has_go_note(image: &Image, programs: &[ProgramHeader]) -> bool {
    const NAME: &[u8] = b"Go";
    let notes = programs.iter().filter(|program| program.p_type.get(LE) == elf::PT_NOTE);
    notes.into_iter().any(|program| {
        let bytes = image.read(program.p_offset.get(LE), program.p_filesz.get(LE), MAX_NOTES_BYTES);
        let Ok(bytes) = bytes else { return false };
        let align = object::U64::new(LE, program.p_align.get(LE)).get(LE);
        let notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LE, align, &bytes);
        notes.is_ok_and(|notes| notes.filter_map(Result::ok).any(|note| note.name() == NAME))
    })
}

/// Finds the build id in the note sections.
pub(crate) fn in_sections(image: &Image, sections: &Sections) -> Option<BuildId> {
    let notes = sections.iter().filter(|section| section.header().sh_type.get(LE) == elf::SHT_NOTE);
    notes
        .filter_map(|section| {
            let bytes = section.read(image, MAX_NOTES_BYTES).ok()?;
            find_in_notes(&bytes, section.header().sh_addralign.get(LE)).ok().flatten()
        })
        .next()
}

fn find_in_notes(notes: &[u8], align: u64) -> Result<Option<BuildId>, ParseError> {
    let notes =
        NoteIterator::<FileHeader64<LittleEndian>>::new(LE, object::U64::new(LE, align).get(LE), notes);
    for note in notes.map_err(|_| ParseError::Malformed)? {
        let note = note.map_err(|_| ParseError::Malformed)?;
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return Ok(BuildId::new(note.desc()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use object::elf::{SHT_NOTE, SHT_NULL};

    use super::*;
    use crate::{elf::Elf, test_file::TestFile};

    fn build_id(file: TestFile) -> Option<String> {
        Elf::parse(Image::Memory(file.bytes())).unwrap().build_id().map(ToString::to_string)
    }

    #[test]
    fn the_build_id_is_found_in_the_sections() {
        assert_eq!(build_id(TestFile::with_code().build_id(&[0x0a, 0xbc])).as_deref(), Some("0abc"));
        assert_eq!(build_id(TestFile::with_code()), None);
    }

    #[test]
    fn the_build_id_is_found_in_a_segment_of_a_file_without_sections() {
        let with_section = TestFile::with_code().build_id(&[7; 20]);
        assert_eq!(build_id(with_section.note_segment().section_type(2, SHT_NULL)), Some("07".repeat(20)));
    }

    #[test]
    fn an_empty_or_too_long_build_id_is_ignored() {
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[1; 65]), None);
        assert_eq!(BuildId::new(&[1; 64]).unwrap().bytes().len(), 64);
        assert_eq!(build_id(TestFile::with_code().build_id(&[])), None);
    }

    #[test]
    fn notes_with_wrong_sizes_contain_no_build_id() {
        for note in [
            &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, b'G', b'N', b'U', 0][..],
            &[0xff; 64],
            &[0; 11],
        ] {
            assert_eq!(build_id(TestFile::with_code().with(".note", SHT_NOTE, note.to_vec())), None);
        }
    }
}
