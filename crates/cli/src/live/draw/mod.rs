//! Draws the state of the live view into the cells of a terminal.

mod graph;
mod help;
mod list;
mod status;

use profiler_profile_formats::{fitting_function, truncated};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::UnicodeWidthStr;

use super::{
    areas::{MIN_COLUMNS, MIN_ROWS},
    function::Function,
    palette::Palette,
    state::LiveState,
};

/// Draws all areas. Returns the position of the cursor while a prompt is open.
pub(super) fn draw(state: &LiveState, palette: Palette, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let Some(areas) = state.areas() else {
        draw_too_small(state.terminal, buffer);
        return None;
    };
    status::draw(state, palette, areas.status, buffer);
    status::draw_finding(state, palette, areas.finding, buffer);
    graph::draw(state, palette, areas.graph, buffer);
    list::draw(state, palette, areas.list, buffer);
    status::draw_details(state, palette, areas.details, buffer);
    let cursor = status::draw_bottom(state, palette, areas.bottom, buffer);
    if state.is_help_shown {
        help::draw(palette, state.terminal, buffer);
    }
    cursor
}

fn draw_too_small(terminal: Rect, buffer: &mut Buffer) {
    let Rect { width, height, .. } = terminal;
    let lines = [
        "the terminal is too small:".to_owned(),
        format!("{width}x{height}, not {MIN_COLUMNS}x{MIN_ROWS}"),
        "q quits".to_owned(),
    ];
    for (row, line) in (0..height).zip(lines) {
        write(buffer, 0, row, width, &line, Style::new());
    }
}

/// Writes a text, truncated to the columns. Returns its width.
fn write(buffer: &mut Buffer, column: u16, row: u16, columns: u16, text: &str, style: Style) -> u16 {
    let text = truncated(text, columns.into());
    buffer.set_stringn(column, row, &text, columns.into(), style);
    u16::try_from(text.width()).unwrap_or(columns)
}

/// The name of a function in this many columns: with its module if that fits and is not part of the name.
fn fitted_name(function: &Function, columns: u16) -> String {
    fitting_function(&function.label, &function.module, columns.into())
}

/// A share in percent.
fn percent(count: u64, of: u64) -> f64 {
    100.0 * count as f64 / of.max(1) as f64
}
