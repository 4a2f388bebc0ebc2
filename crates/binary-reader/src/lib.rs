//! Bounded reads of binary files from untrusted owners.
//!
//! Parsers of object files and debug information that run with privileges must survive any input: truncated files,
//! files that shrink while they are read, wrong sizes, and structures that make a parser read the same bytes
//! without end. This crate has the parts that such parsers share: a file image that is read with `pread` and never
//! mapped, a page cache over it, a byte cursor, a work budget that bounds the total cost, and the arithmetic between
//! mappings and segments.
//!
//! ```
//! use std::sync::Arc;
//! use profiler_binary_reader::{ByteCursor, Image, PagedImage, ParseError, WorkBudget};
//!
//! let image = Image::Memory(b"\x07\0\0\0name\0".to_vec());
//! let budget = Arc::new(WorkBudget::default());
//! let mut image = PagedImage::new(image, budget)?;
//! let header: [u8; 4] = image.read_array(image.full_range())?;
//! assert_eq!(ByteCursor::new(&header, 0).u32()?, 7);
//! assert_eq!(image.read_string(image.full_range().skip(4)?, 100)?, b"name");
//! assert_eq!(image.full_range().skip(10), Err(ParseError::Malformed));
//! # Ok::<(), ParseError>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | `image` | [`Image`]: a file, bytes in memory, or another reader's bytes ([`ReadAt`]) |
//! | `paged_image` | [`PagedImage`]: an image with a page cache; [`ByteRange`] |
//! | `loaded_image` | [`LoadedImage`]: an image that is read by address; [`RelativeRelocation`] |
//! | `cursor` | [`ByteCursor`]: fixed-size and compressed integers |
//! | `budget` | [`WorkBudget`]: limits of all parsers of a session together |
//! | `text` | [`text_of`], [`text_of_utf16`]: names with any bytes |
//! | `segment` | [`Segment`], [`SegmentLayout`]: runtime addresses, file offsets and ELF addresses |

mod budget;
mod cursor;
mod error;
mod image;
mod loaded_image;
mod names;
mod paged_image;
mod segment;
mod text;

pub use budget::{WORK_PER_READ, WorkBudget};
pub use cursor::ByteCursor;
pub use error::ParseError;
pub use image::{Image, ReadAt};
pub use loaded_image::{LoadedImage, RelativeRelocation};
pub use names::{Name, Names, shortened};
pub use paged_image::{ByteRange, PagedImage};
pub use segment::{Segment, SegmentLayout, elf_address};
pub use text::{text_of, text_of_utf16};
