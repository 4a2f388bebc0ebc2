//! Where the rows of the metadata tables are, and what stands in them (ECMA-335 II.24.2.6).

use super::schema::{Column, TABLES, Table, tag_bits};
use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

/// Columns of a table.
const MAX_COLUMNS: usize = 9;

/// The header, with the rows of as many tables as there can be.
const MAX_HEADER_BYTES: u64 = 24 + 64 * 4 + 4;

/// All tables of a module.
#[derive(Clone, Debug)]
pub(super) struct Tables(Vec<Place>);

/// Where the rows of one table are.
#[derive(Clone, Copy, Debug)]
struct Place {
    span: ByteRange,
    rows: u32,
    row_bytes: u32,
    /// Where each column begins in a row; a column that there is not has no width.
    columns: [u8; MAX_COLUMNS + 1],
}

impl Tables {
    /// Reads the header of the stream of tables.
    pub(super) fn read(pieces: &mut PagedImage, stream: ByteRange) -> Result<Self, ParseError> {
        let bytes = pieces.read_up_to(stream, MAX_HEADER_BYTES)?;
        let mut header = ByteCursor::new(&bytes, 6);
        let heap_sizes = header.u8()?;
        header.skip(1);
        let present = header.u64()?;
        header.skip(8);
        let mut rows = [0; 64];
        for (table, rows) in rows.iter_mut().enumerate() {
            if present >> table & 1 != 0 {
                *rows = header.u32()?;
            }
        }
        const HAS_EXTRA_DATA: u8 = 0x40;
        if heap_sizes & HAS_EXTRA_DATA != 0 {
            header.skip(4);
        }
        let widths = Widths { heap_sizes, rows };
        let mut rest = stream.skip(header.position() as u64)?;
        let mut places = Vec::new();
        for (columns, rows) in TABLES.iter().zip(rows) {
            let (columns, row_bytes) = widths.columns(columns);
            let span = rest.prefix(u64::from(rows) * u64::from(row_bytes))?;
            rest = rest.skip(span.len())?;
            places.push(Place { span, rows, row_bytes, columns });
        }
        Ok(Self(places))
    }

    pub(super) fn rows(&self, table: Table) -> u32 {
        self.0.get(table as usize).map_or(0, |place| place.rows)
    }

    /// What stands in a column of a row, which is counted from 1.
    pub(super) fn cell(
        &self,
        pieces: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<u32, ParseError> {
        let place = self.0.get(table as usize).ok_or(ParseError::Malformed)?;
        let index = row.checked_sub(1).filter(|index| *index < place.rows).ok_or(ParseError::Malformed)?;
        let (start, end) = (place.columns[column], place.columns[column + 1]);
        let at = u64::from(index) * u64::from(place.row_bytes) + u64::from(start);
        let cell = place.span.skip(at)?;
        Ok(if end - start == 2 {
            u16::from_le_bytes(pieces.read_array(cell)?).into()
        } else {
            u32::from_le_bytes(pieces.read_array(cell)?)
        })
    }

    /// How many rows have a number up to `value` in a column by which they are ordered.
    pub(super) fn rows_up_to(
        &self,
        pieces: &mut PagedImage,
        table: Table,
        column: usize,
        value: u32,
    ) -> Result<u32, ParseError> {
        let (mut from, mut to) = (0, self.rows(table));
        while from < to {
            let middle = from.midpoint(to);
            if self.cell(pieces, table, middle + 1, column)? <= value {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(from)
    }
}

/// What decides how wide columns are.
struct Widths {
    heap_sizes: u8,
    rows: [u32; 64],
}

impl Widths {
    fn columns(&self, columns: &[Column]) -> ([u8; MAX_COLUMNS + 1], u32) {
        let mut starts = [0; MAX_COLUMNS + 1];
        let mut end = 0;
        for (index, start) in starts.iter_mut().enumerate().skip(1) {
            end += columns.get(index - 1).map_or(0, |column| self.width(*column));
            *start = end;
        }
        (starts, end.into())
    }

    fn width(&self, column: Column) -> u8 {
        let is_wide = match column {
            Column::U16 => false,
            Column::U32 => true,
            Column::String => self.heap_sizes & 1 != 0,
            Column::Guid => self.heap_sizes & 2 != 0,
            Column::Blob => self.heap_sizes & 4 != 0,
            Column::Row(table) => self.rows[usize::from(table)] > 0xffff,
            Column::Coded(tables) => {
                let most = tables.iter().map(|table| self.rows[usize::from(*table)]).max().unwrap_or(0);
                most > 0xffff >> tag_bits(tables)
            }
        };
        if is_wide { 4 } else { 2 }
    }
}
