//! The format of a file of the spool: a header of 44 bytes, and the body. All numbers are little-endian.
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 8 | magic: `profspol` |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | CRC-32 (IEEE) of the body |
//! | 16 | 8 | start of the window, nanoseconds since 1970-01-01 UTC |
//! | 24 | 8 | samples |
//! | 32 | 8 | length of the body, in bytes |
//! | 40 | 4 | CRC-32 (IEEE) of the bytes above |

use crate::delivery::queue::Pending;

/// The size of the header, in bytes.
pub(super) const HEADER_BYTES: usize = 44;

const MAGIC: [u8; 8] = *b"profspol";
const VERSION: u32 = 1;

/// The most samples of a message. The sum of all files of a spool stays far below 64 bits.
const MAX_SAMPLES: u64 = 1 << 44;

/// The offset of the header's checksum.
const CHECKSUM_OFFSET: usize = 40;

/// What a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) started_unix_ns: u64,
    pub(super) samples: u64,
    pub(super) body_bytes: u64,
    pub(super) body_checksum: u32,
}

impl Header {
    pub(super) fn of(message: &Pending) -> Self {
        Self {
            started_unix_ns: message.started_unix_ns,
            samples: message.samples,
            body_bytes: message.body.len() as u64,
            body_checksum: crc32fast::hash(&message.body),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.started_unix_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.samples.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.body_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// An error says what is wrong.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let number = |offset| u32::from_le_bytes(array(bytes, offset));
        let long_number = |offset| u64::from_le_bytes(array(bytes, offset));
        if bytes[..8] != MAGIC {
            return Err("it is not a file of a spool");
        }
        if number(CHECKSUM_OFFSET) != crc32fast::hash(&bytes[..CHECKSUM_OFFSET]) {
            return Err("the checksum of its header is wrong");
        }
        if number(8) != VERSION {
            return Err("it has another version");
        }
        if long_number(24) > MAX_SAMPLES {
            return Err("it has more samples than a window can have");
        }
        Ok(Self {
            body_checksum: number(12),
            started_unix_ns: long_number(16),
            samples: long_number(24),
            body_bytes: long_number(32),
        })
    }

    /// The length of the file, in bytes.
    pub(super) fn file_length(&self) -> u64 {
        self.body_bytes.saturating_add(HEADER_BYTES as u64)
    }
}

/// The `N` bytes from an offset within the header.
fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}
