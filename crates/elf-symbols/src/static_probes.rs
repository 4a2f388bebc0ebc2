//! Static probes (USDT), from the notes of `.note.stapsdt`.
//!
//! Format: "User Space Probe Implementation" of the SystemTap wiki, and `sys/sdt.h` of SystemTap. The description of a note has
//! three addresses (of the probe, of `.stapsdt.base`, of the semaphore), then provider, name and arguments, each ended by a zero
//! byte.

use object::{
    LittleEndian,
    elf::{FileHeader64, NoteType},
    read::elf::NoteIterator,
};
use profiler_addresses::{ElfAddress, FileOffset};
use profiler_binary_reader::{ByteCursor, ParseError};

use crate::{elf::Elf, header::LE};

const NOTE_SECTION: &[u8] = b".note.stapsdt";
const NOTE_NAME: &[u8] = b"stapsdt";
const NOTE_TYPE: NoteType = NoteType(3);

/// A section of one byte. A program that moves a file to another address (prelink) changes its address and not the notes.
const BASE_SECTION: &[u8] = b".stapsdt.base";

/// A Java virtual machine, which has more probes than other files, has 100 KiB of notes.
const MAX_NOTES_BYTES: u64 = 4 << 20;

/// An instruction at which a program reports what it does. Several can have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    /// The name of the program or library that reports.
    pub provider: String,
    /// The name of the probe.
    pub name: String,
    /// The places of its arguments, as the assembler writes operands: `8@%rdi -4@-20(%rbp)`.
    pub arguments: String,
    /// The address of the instruction.
    pub address: ElfAddress,
    /// The address of a 16-bit counter: the program reports while it is not 0. `None`: the program always reports.
    pub semaphore: Option<ElfAddress>,
}

impl Elf {
    /// Reads the static probes of the file; empty where it has none.
    ///
    /// # Errors
    /// When a note is malformed, a text in it is not printable ASCII, or the notes are larger than 4 MiB.
    pub fn static_probes(&self) -> Result<Vec<StaticProbe>, ParseError> {
        let sections = self.sections()?;
        let Some(section) = sections.find(NOTE_SECTION) else { return Ok(Vec::new()) };
        let notes = section.read(self.image(), MAX_NOTES_BYTES)?;
        let base = sections.find(BASE_SECTION).map(|section| section.address());
        let align = section.header().sh_addralign.get(LE);
        let notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LE, align, &notes);
        let mut probes = Vec::new();
        for note in notes.map_err(|_| ParseError::Malformed)? {
            let note = note.map_err(|_| ParseError::Malformed)?;
            if note.name() == NOTE_NAME && note.n_type(LE) == NOTE_TYPE {
                probes.push(parse(note.desc(), base)?);
            }
        }
        Ok(probes)
    }

    /// The place in the file of an address in a writable segment; `None` outside of all of them, and for variables without bytes
    /// in the file.
    pub fn variable_offset(&self, address: ElfAddress) -> Option<FileOffset> {
        let writable = self.segments().iter().filter(|segment| segment.is_writable);
        writable.filter_map(|segment| segment.rest_from(address)).map(|(offset, _)| offset).next()
    }
}

/// Parses the description of a note. `base`: the address of `.stapsdt.base`.
fn parse(description: &[u8], base: Option<ElfAddress>) -> Result<StaticProbe, ParseError> {
    let mut cursor = ByteCursor::new(description, 0);
    let (address, noted_base, semaphore) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let moved_by = base.map_or(0, |base| base.0.wrapping_sub(noted_base));
    let mut texts = description.get(cursor.position()..).unwrap_or_default().split(|byte| *byte == 0);
    let mut text = || {
        let bytes = texts.next().ok_or(ParseError::Malformed)?;
        // A control character in a name could change what a terminal shows.
        let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        if is_text { Ok(String::from_utf8_lossy(bytes).into_owned()) } else { Err(ParseError::Malformed) }
    };
    Ok(StaticProbe {
        provider: text()?,
        name: text()?,
        arguments: text()?,
        address: ElfAddress(address.wrapping_add(moved_by)),
        semaphore: (semaphore != 0).then(|| ElfAddress(semaphore.wrapping_add(moved_by))),
    })
}

#[cfg(test)]
mod tests {
    use object::elf;
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, static_probe_note};

    fn probes(file: TestFile) -> Result<Vec<StaticProbe>, ParseError> {
        Elf::parse(Image::Memory(file.bytes())).unwrap().static_probes()
    }

    fn with_notes(notes: &[Vec<u8>]) -> TestFile {
        TestFile::with_code().with(".note.stapsdt", elf::SHT_NOTE, notes.concat())
    }

    #[test]
    fn each_note_is_a_probe() {
        let notes = [
            static_probe_note([0x1010, 0, 0], b"app\0start\x008@%rdi -4@-20(%rbp)\0"),
            static_probe_note([0x1020, 0, 0x2008], b"app\0end\0\0"),
        ];
        let expected = [
            StaticProbe {
                provider: "app".to_owned(),
                name: "start".to_owned(),
                arguments: "8@%rdi -4@-20(%rbp)".to_owned(),
                address: ElfAddress(0x1010),
                semaphore: None,
            },
            StaticProbe {
                provider: "app".to_owned(),
                name: "end".to_owned(),
                arguments: String::new(),
                address: ElfAddress(0x1020),
                semaphore: Some(ElfAddress(0x2008)),
            },
        ];
        assert_eq!(probes(with_notes(&notes)).unwrap(), expected);
        assert_eq!(probes(TestFile::with_code()).unwrap(), []);
    }

    #[test]
    fn a_file_that_was_moved_has_its_probes_at_their_new_addresses() {
        let notes = [static_probe_note([0x1010, 0x400, 0x2008], b"a\0b\0\0")];
        let file =
            with_notes(&notes).with(".stapsdt.base", elf::SHT_PROGBITS, vec![0]).section_address(0x500);
        let found = &probes(file).unwrap()[0];
        assert_eq!((found.address, found.semaphore), (ElfAddress(0x1110), Some(ElfAddress(0x2108))));
    }

    #[test]
    fn other_notes_are_no_probes() {
        let build_id = TestFile::with_code().build_id(&[1; 20]);
        assert_eq!(probes(build_id).unwrap(), []);
        let mut other = static_probe_note([0x1010, 0, 0], b"a\0b\0\0");
        other[8] = 4;
        assert_eq!(probes(with_notes(&[other])).unwrap(), []);
    }

    #[test]
    fn malformed_notes_are_errors() {
        let note = static_probe_note([0x1010, 0, 0], b"app\0start\0\0");
        let mut too_long = note.clone();
        too_long[4] = 0xff;
        for wrong in [
            too_long,
            note[..note.len() - 8].to_vec(),
            static_probe_note([0x1010, 0, 0], b"app"),
            static_probe_note([0x1010, 0, 0], b"app\0\xff\0\0"),
            static_probe_note([0x1010, 0, 0], b"app\0\x1b[2J\0\0"),
        ] {
            assert_eq!(probes(with_notes(&[wrong])), Err(ParseError::Malformed));
        }
    }

    #[test]
    fn notes_of_any_length_and_content_do_not_panic() {
        let note = static_probe_note([0x1010, 0, 0x2008], b"app\0start\x008@%rdi\0");
        for length in 0..note.len() {
            let _ = probes(with_notes(&[note[..length].to_vec()]));
        }
        for position in 0..note.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = note.clone();
                changed[position] = value;
                let _ = probes(with_notes(&[changed]));
            }
        }
    }

    #[test]
    fn a_variable_has_an_offset_in_its_segment() {
        let file = TestFile::with_code().data_at(0x2000, vec![7; 16]);
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        let offset = elf.variable_offset(ElfAddress(0x2008)).unwrap();
        let mut found = [0; 8];
        elf.image().read_into(offset.0, &mut found).unwrap();
        assert_eq!(found, [7; 8]);
        assert_eq!(elf.variable_offset(ElfAddress(0x2010)), None);
        assert_eq!(elf.variable_offset(ElfAddress(0x1000)), None);
    }
}
