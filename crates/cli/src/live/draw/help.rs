//! Draws the help: keys and colours, over the other areas.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::write;
use crate::live::{
    function::Kind,
    keys::HELP,
    palette::{Emphasis, Palette},
};

/// The column of the descriptions.
const DESCRIPTION_COLUMN: u16 = 20;

const COLUMNS: u16 = 84;

pub(super) fn draw(palette: Palette, terminal: Rect, buffer: &mut Buffer) {
    // A title, an empty line above and below the keys, and the legend.
    let rows = u16::try_from(HELP.len()).unwrap_or(u16::MAX).saturating_add(4).min(terminal.height);
    let columns = COLUMNS.min(terminal.width);
    let area = Rect::new((terminal.width - columns) / 2, (terminal.height - rows) / 2, columns, rows);
    let blank = " ".repeat(columns.into());
    for row in area.y..area.bottom() {
        buffer.set_stringn(area.x, row, &blank, columns.into(), Style::reset());
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let inside = Rect { x: area.x + 1, width: area.width - 2, ..area };
    buffer.set_style(Rect { height: 1, ..area }, palette.notice());
    write(buffer, inside.x, area.y, inside.width, "Keys: any key closes this", palette.notice());
    let last = area.bottom() - 1;
    for (row, (keys, description)) in (area.y + 2..last).zip(HELP) {
        let used = write(buffer, inside.x, row, inside.width, keys, bold).max(DESCRIPTION_COLUMN);
        write(buffer, inside.x + used, row, inside.width.saturating_sub(used), description, Style::new());
    }
    draw_legend(palette, Rect { y: last, height: 1, ..inside }, buffer);
}

fn draw_legend(palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut column = area.x;
    for kind in Kind::CODE_KINDS {
        let left = area.right().saturating_sub(column);
        let text = format!(" {} ", kind.name());
        column += write(buffer, column, area.y, left, &text, palette.style(kind, 0, Emphasis::None)) + 1;
        column = column.min(area.right());
    }
}
