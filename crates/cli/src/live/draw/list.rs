//! Draws the table of hot functions.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::{fitted_name, percent, write};
use crate::live::{
    hot_list::Order,
    palette::{Emphasis, Palette},
    state::{LiveState, Pane},
};

/// The column of function names, after both shares and the kind.
const NAME_COLUMN: u16 = 34;

/// The column of the kind.
const KIND_COLUMN: u16 = 20;

/// The width of the longest kind.
const KIND_COLUMNS: u16 = 13;

pub(super) fn draw(state: &LiveState, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let heading = match state.list.order {
        Order::Own => "   *self    total    kind         hot functions",
        Order::Total => "    self   *total    kind         hot functions",
    };
    write(buffer, area.x, area.y, area.width, heading, palette.faint().add_modifier(Modifier::BOLD));
    let functions = state.list.functions(&state.tree);
    let selected = state.list.selected_row(&state.tree, &functions);
    let height = usize::from(area.height - 1);
    let first = selected.saturating_sub(height / 2).min(functions.len().saturating_sub(height));
    let rows = functions.iter().enumerate().skip(first);
    for (row, (index, number)) in (area.y + 1..area.bottom()).zip(rows) {
        let is_selected = index == selected && state.pane == Pane::List;
        draw_function(state, palette, *number, is_selected, Rect { y: row, height: 1, ..area }, buffer);
    }
}

fn draw_function(
    state: &LiveState,
    palette: Palette,
    number: usize,
    is_selected: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let Some(function) = state.tree.function_by_number(number) else { return };
    let count = state.tree.function_count(number);
    let shares = [count.own, count.total].map(|count| percent(count, state.tree.samples()));
    let is_faded = state.search.as_ref().is_some_and(|search| !search.matches(number));
    let text = match (is_selected, is_faded) {
        (true, _) => palette.style(function.kind, 0, Emphasis::Selected),
        (false, true) => palette.faint(),
        (false, false) => Style::new(),
    };
    buffer.set_style(area, text);
    let line = format!("{:>6.1} % {:>6.1} %", shares[0], shares[1]);
    write(buffer, area.x, area.y, area.width, &line, text);
    let kind = palette.style(function.kind, 0, Emphasis::None);
    let kind = if is_selected { text } else { kind };
    let kind_area = Rect::new(area.x + KIND_COLUMN, area.y, KIND_COLUMNS, 1).intersection(area);
    buffer.set_style(kind_area, kind);
    write(buffer, kind_area.x, area.y, kind_area.width, &format!(" {}", function.kind.name()), kind);
    let columns = area.width.saturating_sub(NAME_COLUMN);
    write(buffer, area.x + NAME_COLUMN, area.y, columns, &fitted_name(function, columns), text);
}
