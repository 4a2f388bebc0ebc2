//! A file of which only what is asked for is read and kept, piece by piece.

use std::sync::Arc;

use crate::{Image, ParseError, WorkBudget};

/// What is read at once: a page of the file.
const PIECE_BYTES: usize = 4 << 10;

/// Files of code are smaller, single-file programs with all their libraries included.
const MAX_IMAGE_BYTES: u64 = 4 << 30;

/// What is kept of one file. The tables of the largest library of the .NET runtime that name its methods fit in.
const MAX_KEPT_BYTES: usize = 8 << 20;

type Piece = Box<[u8; PIECE_BYTES]>;

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// What follows from `offset` on, counted from the start.
    pub fn from(self, offset: u64) -> Result<Self, ParseError> {
        let start = self.start.checked_add(offset).filter(|start| *start <= self.end);
        Ok(Self { start: start.ok_or(ParseError::Malformed)?, end: self.end })
    }

    /// The first `bytes` of it.
    pub fn first(self, bytes: u64) -> Result<Self, ParseError> {
        let end = self.start.checked_add(bytes).filter(|end| *end <= self.end);
        Ok(Self { start: self.start, end: end.ok_or(ParseError::Malformed)? })
    }
}

/// A file and what was read of it.
#[derive(Debug)]
pub struct PagedImage {
    image: Image,
    pieces: Vec<Option<Piece>>,
    kept_bytes: usize,
    budget: Arc<WorkBudget>,
}

impl PagedImage {
    /// Every read costs something of `budget`.
    pub fn new(image: Image, budget: Arc<WorkBudget>) -> Result<Self, ParseError> {
        if image.length() > MAX_IMAGE_BYTES {
            return Err(ParseError::TooLarge);
        }
        Ok(Self { image, pieces: Vec::new(), kept_bytes: 0, budget })
    }

    /// The whole file.
    pub fn all(&self) -> ByteRange {
        ByteRange { start: 0, end: self.image.length() }
    }

    /// How many bytes of the file are kept in memory.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub fn budget(&self) -> &Arc<WorkBudget> {
        &self.budget
    }

    /// Takes the cost of reading so many bytes off the budget.
    pub fn spend(&self, bytes: u64) -> Result<(), ParseError> {
        if self.budget.spend_on_reading(bytes) { Ok(()) } else { Err(ParseError::TooLarge) }
    }

    /// All of a span at once, which is not kept.
    pub fn read_all(&self, span: ByteRange, limit: u64) -> Result<Vec<u8>, ParseError> {
        self.spend(span.len().min(limit))?;
        self.image.read(span.start, span.len(), limit)
    }

    /// The first bytes of a span.
    pub fn array<const N: usize>(&mut self, span: ByteRange) -> Result<[u8; N], ParseError> {
        let mut bytes = [0; N];
        self.read(span.first(N as u64)?.start, &mut bytes)?;
        Ok(bytes)
    }

    /// At most `limit` bytes of a span.
    pub fn up_to(&mut self, span: ByteRange, limit: u64) -> Result<Vec<u8>, ParseError> {
        let mut bytes = vec![0; span.len().min(limit) as usize];
        self.read(span.start, &mut bytes)?;
        Ok(bytes)
    }

    /// The string at the start of a span, up to its zero byte.
    pub fn string(&mut self, span: ByteRange, limit: usize) -> Result<Vec<u8>, ParseError> {
        let mut string = Vec::new();
        let mut at = span.start;
        while at < span.end {
            let (piece, offset) = self.piece_at(at)?;
            let rest = piece.get(offset..).unwrap_or_default();
            let rest = &rest[..rest.len().min((span.end - at) as usize)];
            let length = memchr::memchr(0, rest);
            string.extend_from_slice(&rest[..length.unwrap_or(rest.len())]);
            at += rest.len() as u64;
            if string.len() > limit {
                return Err(ParseError::TooLarge);
            }
            if length.is_some() {
                self.spend(string.len() as u64)?;
                return Ok(string);
            }
        }
        Err(ParseError::Malformed)
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        let end = at.checked_add(buffer.len() as u64).ok_or(ParseError::Malformed)?;
        if end > self.image.length() {
            return Err(ParseError::Malformed);
        }
        self.spend(buffer.len() as u64)?;
        let mut filled = 0;
        while filled < buffer.len() {
            let (piece, offset) = self.piece_at(at + filled as u64)?;
            let rest = piece.get(offset..).unwrap_or_default();
            let bytes = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + bytes].copy_from_slice(&rest[..bytes]);
            filled += bytes;
        }
        Ok(())
    }

    /// The piece that holds a byte of the file, and where in it the byte is.
    fn piece_at(&mut self, at: u64) -> Result<(&[u8; PIECE_BYTES], usize), ParseError> {
        let index = usize::try_from(at / PIECE_BYTES as u64).map_err(|_| ParseError::Malformed)?;
        if self.pieces.get(index).is_none_or(Option::is_none) {
            self.load(index)?;
        }
        let piece = self.pieces.get(index).and_then(Option::as_deref).ok_or(ParseError::Malformed)?;
        Ok((piece, (at % PIECE_BYTES as u64) as usize))
    }

    fn load(&mut self, index: usize) -> Result<(), ParseError> {
        self.spend(PIECE_BYTES as u64)?;
        let start = (index * PIECE_BYTES) as u64;
        let bytes =
            self.image.length().checked_sub(start).ok_or(ParseError::Malformed)?.min(PIECE_BYTES as u64);
        let mut piece = Box::new([0; PIECE_BYTES]);
        self.image.read_into(start, &mut piece[..bytes as usize])?;
        if self.kept_bytes >= MAX_KEPT_BYTES {
            self.pieces.clear();
            self.kept_bytes = 0;
        }
        if self.pieces.len() <= index {
            self.pieces.resize_with(index + 1, || None);
        }
        self.pieces[index] = Some(piece);
        self.kept_bytes += PIECE_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: Vec<u8>) -> PagedImage {
        PagedImage::new(Image::Memory(bytes), Arc::default()).unwrap()
    }

    fn numbered(bytes: usize) -> PagedImage {
        of((0..bytes).map(|at| (at % 251) as u8 + 1).collect())
    }

    #[test]
    fn bytes_are_the_same_within_and_across_pieces() {
        let mut pieces = numbered(3 * PIECE_BYTES + 5);
        for start in [0, 1, PIECE_BYTES - 2, 2 * PIECE_BYTES - 1, 3 * PIECE_BYTES + 1] {
            let span = pieces.all().from(start as u64).unwrap();
            let expected: Vec<u8> = (start..start + 4).map(|at| (at % 251) as u8 + 1).collect();
            assert_eq!(pieces.array::<4>(span).unwrap().to_vec(), expected);
            assert_eq!(pieces.up_to(span, 4).unwrap(), expected);
        }
        assert!(pieces.array::<4>(ByteRange { start: (3 * PIECE_BYTES + 2) as u64, end: u64::MAX }).is_err());
        assert!(pieces.all().from(u64::MAX).is_err());
    }

    #[test]
    fn a_string_ends_at_its_zero_byte_or_is_none() {
        let mut bytes = vec![b'x'; PIECE_BYTES + 10];
        bytes.extend([0, b'y', b'z']);
        let mut pieces = of(bytes);
        let all = pieces.all();
        assert_eq!(pieces.string(all, 1 << 20).unwrap().len(), PIECE_BYTES + 10);
        assert_eq!(pieces.string(all, 100), Err(ParseError::TooLarge));
        let tail = all.from(all.len() - 2).unwrap();
        assert_eq!(pieces.string(tail, 100), Err(ParseError::Malformed));
    }

    #[test]
    fn reading_ends_with_its_budget_and_keeping_with_its_limit() {
        let image = || Image::Memory(vec![1; MAX_KEPT_BYTES + 10 * PIECE_BYTES]);
        let mut pieces =
            PagedImage::new(image(), Arc::new(WorkBudget::of_work(10 * PIECE_BYTES as u64))).unwrap();
        let all = pieces.all();
        assert!(pieces.array::<4>(all).is_ok());
        assert_eq!(pieces.string(all, usize::MAX), Err(ParseError::TooLarge));
        let mut pieces = PagedImage::new(image(), Arc::default()).unwrap();
        assert_eq!(pieces.string(all, usize::MAX), Err(ParseError::Malformed));
        assert!((1..=MAX_KEPT_BYTES).contains(&pieces.kept_bytes));
    }
}
