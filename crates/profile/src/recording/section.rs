//! Sections: each has a kind, its lengths and a checksum, and is compressed for itself.

use std::io::{self, Read, Write};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

/// No section is larger, packed or unpacked. Those that are written begin a new one far earlier, but no entry is split.
const MAX_SECTION_BYTES: u32 = 64 << 20;

/// What all sections of a file may hold together, unpacked: a small file must not fill the memory. Fifty million
/// samples take so much.
const MAX_TOTAL_BYTES: u64 = 512 << 20;

/// Kind, unpacked and packed length, checksum.
const HEAD_BYTES: usize = 13;

/// What a section holds. The numbers stand in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Header = 1,
    Ledger = 2,
    Strings = 3,
    Modules = 4,
    Frames = 5,
    Stacks = 6,
    Processes = 7,
    Threads = 8,
    Samples = 9,
    End = 10,
    Containers = 11,
    Events = 12,
    Findings = 13,
    RuntimeEvents = 14,
    KubernetesNames = 15,
    Attributes = 16,
    LockOwners = 17,
    OmittedEvents = 18,
    FindingFacts = 19,
    FindingPartners = 20,
    PollReadings = 21,
    ManagedThreads = 22,
}

impl Kind {
    const ALL: [Self; 22] = [
        Self::Header,
        Self::Ledger,
        Self::Strings,
        Self::Modules,
        Self::Frames,
        Self::Stacks,
        Self::Processes,
        Self::Threads,
        Self::Samples,
        Self::End,
        Self::Containers,
        Self::Events,
        Self::Findings,
        Self::RuntimeEvents,
        Self::KubernetesNames,
        Self::Attributes,
        Self::LockOwners,
        Self::OmittedEvents,
        Self::FindingFacts,
        Self::FindingPartners,
        Self::PollReadings,
        Self::ManagedThreads,
    ];

    /// The kind of a number.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Compresses sections, one after the other: most are so small that a compressor of their own costs more than compressing them.
#[derive(Debug)]
pub(super) struct Packer(DeflateEncoder<Vec<u8>>);

impl Packer {
    pub(super) fn new() -> Self {
        Self(DeflateEncoder::new(Vec::new(), Compression::fast()))
    }

    fn pack(&mut self, body: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(body)?;
        self.0.reset(Vec::new())
    }
}

/// Writes a section.
pub(super) fn write(kind: Kind, body: &[u8], packer: &mut Packer, to: &mut impl Write) -> io::Result<()> {
    let packed = packer.pack(body)?;
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidData, "an entry of the profile is too large");
    let unpacked_bytes = u32::try_from(body.len()).map_err(too_large)?;
    let packed_bytes = u32::try_from(packed.len()).map_err(too_large)?;
    let mut head = [0; HEAD_BYTES];
    head[0] = kind as u8;
    head[1..5].copy_from_slice(&unpacked_bytes.to_le_bytes());
    head[5..9].copy_from_slice(&packed_bytes.to_le_bytes());
    let checksum = checksum(&head, &packed);
    head[9..].copy_from_slice(&checksum.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(&packed)
}

/// The checksum of header and compressed body.
fn checksum(head: &[u8; HEAD_BYTES], packed: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&head[..9]);
    checksum.update(packed);
    checksum.finalize()
}

/// A decoded section. A kind of a later version is `None`.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) kind: Option<Kind>,
    pub(super) body: Vec<u8>,
}

/// Why reading ends before the end section.
#[derive(Debug)]
pub(super) enum Stop {
    /// A read failed.
    Unreadable(io::Error),
    /// The file is damaged or truncated.
    Damaged(&'static str),
}

/// Iterates over the sections of a file.
#[derive(Debug)]
pub(super) struct Sections<R> {
    from: R,
    left_bytes: u64,
}

impl<R: Read> Sections<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, left_bytes: MAX_TOTAL_BYTES }
    }

    pub(super) fn next(&mut self) -> Result<Section, Stop> {
        let mut head = [0; HEAD_BYTES];
        self.from.read_exact(&mut head).map_err(stop)?;
        let [kind, a, b, c, d, e, f, g, h, i, j, k, l] = head;
        let unpacked_bytes = u32::from_le_bytes([a, b, c, d]);
        let packed_bytes = u32::from_le_bytes([e, f, g, h]);
        if unpacked_bytes.max(packed_bytes) > MAX_SECTION_BYTES {
            return Err(Stop::Damaged("a section is too large"));
        }
        let left_bytes = self.left_bytes.checked_sub(unpacked_bytes.into());
        self.left_bytes = left_bytes.ok_or(Stop::Damaged("it is too large"))?;
        let packed = read_all(&mut self.from, packed_bytes).map_err(stop)?;
        if checksum(&head, &packed) != u32::from_le_bytes([i, j, k, l]) {
            return Err(Stop::Damaged("a checksum does not match"));
        }
        // The checksum is valid, so a short body is damage and not the end of the file.
        let body = read_all(DeflateDecoder::new(&*packed), unpacked_bytes);
        let body = body.map_err(|_| Stop::Damaged("a section cannot be unpacked"))?;
        Ok(Section { kind: Kind::of_number(kind), body })
    }
}

/// Reads exactly `length_bytes`. Memory grows with the bytes that arrive, not with the stated length.
fn read_all(from: impl Read, length_bytes: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length_bytes.into()).read_to_end(&mut bytes)?;
    if bytes.len() == length_bytes as usize { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn stop(error: io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Stop::Damaged("it ends too early"),
        _ => Stop::Unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(kind, body, &mut Packer::new(), &mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Section, Stop> {
        Sections::new(bytes).next()
    }

    #[test]
    fn decoding_a_section_inverts_encoding() {
        for kind in Kind::ALL {
            let section = read(&written(kind, b"body")).unwrap();
            assert_eq!((section.kind, &*section.body), (Some(kind), &b"body"[..]));
        }
        assert_eq!(read(&written(Kind::End, b"")).unwrap().body, b"");
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let whole = written(Kind::Frames, b"some frames");
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[place] ^= 1 << bit;
                assert!(matches!(read(&changed), Err(Stop::Damaged(_))), "byte {place}, bit {bit}");
            }
            assert!(matches!(read(&whole[..place]), Err(Stop::Damaged("it ends too early"))));
        }
    }

    #[test]
    fn a_section_with_a_wrong_uncompressed_length_is_damaged() {
        for promised in [0_u32, 3, 5] {
            let mut bytes = written(Kind::Strings, b"text");
            bytes[1..5].copy_from_slice(&promised.to_le_bytes());
            let mut head = [0; HEAD_BYTES];
            head.copy_from_slice(&bytes[..HEAD_BYTES]);
            let checksum = checksum(&head, &bytes[HEAD_BYTES..]);
            bytes[9..13].copy_from_slice(&checksum.to_le_bytes());
            // What is longer than promised is cut, and nothing is left to be read wrongly.
            assert_eq!(read(&bytes).is_ok(), promised < 4);
        }
    }

    #[test]
    fn the_sum_of_all_sections_is_bounded() {
        let file = written(Kind::Strings, b"text").repeat(3);
        let mut sections = Sections { from: &*file, left_bytes: 8 };
        assert!(sections.next().is_ok() && sections.next().is_ok());
        assert!(matches!(sections.next(), Err(Stop::Damaged("it is too large"))));
    }
}
