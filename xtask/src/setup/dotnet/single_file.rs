//! Takes a single-file .NET program apart: the host that has the runtime in it, and an assembly behind it.
//!
//! Source: dotnet/runtime, `src/native/corehost/bundle`.

use anyhow::{Context as _, Result};

/// The offset of the list of files is in front of these bytes of the host.
const MARKER: [u8; 16] =
    [0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32];

/// The program without what it carries: an ELF file ends with the table of its sections.
pub(super) fn host(program: &[u8]) -> Result<&[u8]> {
    let numbers = Reader(program);
    let table = numbers.u64(0x28)?;
    let [entry_bytes, entries] = [numbers.u16(0x3a)?, numbers.u16(0x3c)?];
    let end = usize::try_from(table + u64::from(entry_bytes) * u64::from(entries))?;
    program.get(..end).context("the program is no ELF file")
}

/// An uncompressed assembly of the program.
pub(super) fn assembly<'a>(program: &'a [u8], name: &str) -> Result<&'a [u8]> {
    const HEADER_BYTES: usize = 12;
    const PLACES_BYTES: usize = 40;
    const ENTRY_BYTES: usize = 25;
    let reader = Reader(program);
    let marker = program.windows(MARKER.len()).position(|window| window == MARKER);
    let marker = marker.context("the program is no single file")?;
    let list = usize::try_from(reader.u64(marker - 8)?)?;
    let count = reader.u32(list + 8)?;
    let (_, mut next) = reader.text(list + HEADER_BYTES)?;
    next += PLACES_BYTES;
    for _ in 0..count {
        let (offset, bytes) = (reader.u64(next)?, reader.u64(next + 8)?);
        let (path, end) = reader.text(next + ENTRY_BYTES)?;
        next = end;
        if path == name.as_bytes() {
            return reader.slice(usize::try_from(offset)?, usize::try_from(bytes)?);
        }
    }
    anyhow::bail!("the program has no {name}")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&self, at: usize, bytes: usize) -> Result<&'a [u8]> {
        self.0.get(at..).and_then(|rest| rest.get(..bytes)).context("the program ends too early")
    }

    fn u16(&self, at: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.slice(at, 2)?.try_into()?))
    }

    fn u32(&self, at: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.slice(at, 4)?.try_into()?))
    }

    fn u64(&self, at: usize) -> Result<u64> {
        Ok(u64::from_le_bytes(self.slice(at, 8)?.try_into()?))
    }

    /// A text behind its length in one or two bytes, and the offset of its end.
    fn text(&self, at: usize) -> Result<(&'a [u8], usize)> {
        const CONTINUES: u8 = 0x80;
        let [first, second] = [self.slice(at, 1)?[0], self.slice(at + 1, 1)?[0]];
        let (bytes, start) = if first & CONTINUES == 0 {
            (usize::from(first), at + 1)
        } else {
            (usize::from(first & !CONTINUES) | usize::from(second) << 7, at + 2)
        };
        Ok((self.slice(start, bytes)?, start + bytes))
    }
}
