//! Reads cells of the metadata tables (ECMA-335 II.24.2.6).

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

use super::schema::{Column, TABLES, Table, tag_bits};

/// Columns of the widest table.
const MAX_COLUMNS: usize = 9;

/// Size of the header: 24 bytes, a row count for each of 64 tables, and extra data.
const MAX_HEADER_BYTES: u64 = 24 + 64 * 4 + 4;

/// All tables of a module.
#[derive(Clone, Debug)]
pub(super) struct MetadataTables(Vec<TableLayout>);

/// The rows of one table.
#[derive(Clone, Copy, Debug)]
struct TableLayout {
    span: ByteRange,
    rows: u32,
    row_bytes: u32,
    /// The offset of each column in a row. Columns beyond the last one have no width.
    column_offsets: [u8; MAX_COLUMNS + 1],
}

impl MetadataTables {
    /// Reads the header of the stream `#~`.
    pub(super) fn read(image: &mut PagedImage, stream: ByteRange) -> Result<Self, ParseError> {
        let bytes = image.read_up_to(stream, MAX_HEADER_BYTES)?;
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
        let widths = ColumnWidths { heap_sizes, rows };
        let mut rest = stream.skip(header.position() as u64)?;
        let mut tables = Vec::new();
        for (columns, rows) in TABLES.iter().zip(rows) {
            let (column_offsets, row_bytes) = widths.column_offsets(columns);
            let span = rest.prefix(u64::from(rows) * u64::from(row_bytes))?;
            rest = rest.skip(span.len())?;
            tables.push(TableLayout { span, rows, row_bytes, column_offsets });
        }
        Ok(Self(tables))
    }

    pub(super) fn rows(&self, table: Table) -> u32 {
        self.0.get(table as usize).map_or(0, |layout| layout.rows)
    }

    /// Reads a column of a row. Rows are counted from 1.
    pub(super) fn cell(
        &self,
        image: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<u32, ParseError> {
        let layout = self.0.get(table as usize).ok_or(ParseError::Malformed)?;
        let index = row.checked_sub(1).filter(|index| *index < layout.rows).ok_or(ParseError::Malformed)?;
        let (start, end) = (layout.column_offsets[column], layout.column_offsets[column + 1]);
        let at = u64::from(index) * u64::from(layout.row_bytes) + u64::from(start);
        let cell = layout.span.skip(at)?;
        Ok(if end - start == 2 {
            u16::from_le_bytes(image.read_array(cell)?).into()
        } else {
            u32::from_le_bytes(image.read_array(cell)?)
        })
    }

    /// The number of rows whose value in a sorted column is at most `value`.
    pub(super) fn rows_up_to(
        &self,
        image: &mut PagedImage,
        table: Table,
        column: usize,
        value: u32,
    ) -> Result<u32, ParseError> {
        let (mut from, mut to) = (0, self.rows(table));
        while from < to {
            let middle = from.midpoint(to);
            if self.cell(image, table, middle + 1, column)? <= value {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(from)
    }
}

/// What determines the widths of columns.
struct ColumnWidths {
    heap_sizes: u8,
    rows: [u32; 64],
}

impl ColumnWidths {
    /// The offsets of the columns, and the size of a row.
    fn column_offsets(&self, columns: &[Column]) -> ([u8; MAX_COLUMNS + 1], u32) {
        let mut offsets = [0; MAX_COLUMNS + 1];
        let mut end = 0;
        for (index, offset) in offsets.iter_mut().enumerate().skip(1) {
            end += columns.get(index - 1).map_or(0, |column| self.width(*column));
            *offset = end;
        }
        (offsets, end.into())
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
