//! The picture of the state, in the cells of a terminal.

mod graph;
mod help;
mod list;
mod status;

use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::UnicodeWidthStr;

use super::{
    areas::{LEAST_COLUMNS, LEAST_ROWS},
    function::Function,
    palette::Palette,
    short_name::{cut, fitting},
    state::State,
};

/// Draws everything. Where the cursor belongs, when something is typed.
pub(super) fn draw(state: &State, palette: Palette, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let Some(areas) = state.areas() else {
        too_small(state.terminal, buffer);
        return None;
    };
    status::draw(state, palette, areas.status, buffer);
    graph::draw(state, palette, areas.graph, buffer);
    list::draw(state, palette, areas.list, buffer);
    status::draw_details(state, palette, areas.details, buffer);
    let cursor = status::draw_bottom(state, palette, areas.bottom, buffer);
    if state.is_helping {
        help::draw(palette, state.terminal, buffer);
    }
    cursor
}

fn too_small(terminal: Rect, buffer: &mut Buffer) {
    let Rect { width, height, .. } = terminal;
    let lines = [
        "the terminal is too small:".to_owned(),
        format!("{width}x{height}, not {LEAST_COLUMNS}x{LEAST_ROWS}"),
        "q leaves".to_owned(),
    ];
    for (row, line) in (0..height).zip(lines) {
        write(buffer, 0, row, width, &line, Style::new());
    }
}

/// Writes the part of a text that fits, and answers with its width.
fn write(buffer: &mut Buffer, column: u16, row: u16, columns: u16, text: &str, style: Style) -> u16 {
    let text = cut(text, columns.into());
    buffer.set_stringn(column, row, &text, columns.into(), style);
    u16::try_from(text.width()).unwrap_or(columns)
}

/// What a function is called in so many columns: with the file it is from, where there is room for that and its name does
/// not say so already.
fn name_in(function: &Function, columns: u16) -> String {
    let Function { label, module, .. } = function;
    let stem = module.trim_end_matches(".dll");
    let is_told = stem.is_empty() || label.starts_with('[') || label.starts_with(&format!("{stem}!"));
    let whole =
        if is_told { label.clone() } else { format!("{label} ({})", module.trim_matches(['[', ']'])) };
    if whole.width() <= columns.into() { whole } else { fitting(label, columns.into()) }
}

/// A part of all, as people read it.
fn percent(count: u64, of: u64) -> f64 {
    100.0 * count as f64 / of.max(1) as f64
}
