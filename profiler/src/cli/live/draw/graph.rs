//! The flame graph: a box for each function on each path.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::cli::live::{
    boxes::{Boxes, Place},
    palette::{Emphasis, Palette, SHADES},
    short_name::fitting,
    state::{Pane, State},
    tree::NodeId,
};

/// What stands at the left of a box where colours do not keep it from its neighbour.
const EDGE: &str = "|";

/// Fewer columns have no room for a part of a name that says anything.
const LEAST_TEXT_COLUMNS: usize = 3;

pub(super) fn draw(state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let selected = state.graph.selected(&state.tree);
    let boxes = Boxes::below(&state.tree, state.graph.zoomed(&state.tree), area.width);
    let selected_row = boxes.find(selected).map_or(0, |(row, _)| row);
    let first = first_row(boxes.rows().len(), area.height.into(), selected_row);
    for (row, places) in (area.y..area.bottom()).zip(boxes.rows().iter().skip(first)) {
        let mut neighbour = None;
        for place in places {
            let shade = shade(&state.tree.function(place.node).label, neighbour, place);
            neighbour = Some((place.column + place.width, shade));
            let emphasis = emphasis(state, place.node, selected);
            draw_box(state, palette, *place, (area.x, row), shade, emphasis, buffer);
        }
    }
}

/// The first row that is seen: the selected one is in the middle, unless there is nothing more at that end.
fn first_row(rows: usize, height: usize, selected: usize) -> usize {
    selected.saturating_sub(height / 2).min(rows.saturating_sub(height))
}

/// A box has the shade of its name, so that it keeps it, or the next when its neighbour has that.
fn shade(label: &str, neighbour: Option<(u16, usize)>, place: &Place) -> usize {
    let shade =
        label.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % SHADES;
    match neighbour {
        Some((column, of_neighbour)) if column == place.column && of_neighbour == shade => {
            (shade + 1) % SHADES
        }
        _ => shade,
    }
}

fn emphasis(state: &State, node: NodeId, selected: NodeId) -> Emphasis {
    if node == selected && state.pane == Pane::Graph {
        return Emphasis::Selected;
    }
    match &state.search {
        Some(search) if !search.matches(state.tree.node(node).function) => Emphasis::Faded,
        _ => Emphasis::None,
    }
}

fn draw_box(
    state: &State,
    palette: Palette,
    place: Place,
    (left, row): (u16, u16),
    shade: usize,
    emphasis: Emphasis,
    buffer: &mut Buffer,
) {
    let function = state.tree.function(place.node);
    let style = palette.style(function.kind, shade, emphasis);
    let column = left + place.column;
    buffer.set_style(Rect::new(column, row, place.width, 1), style);
    let mut text = if palette.has_shades() { String::new() } else { EDGE.to_owned() };
    let columns = usize::from(place.width) - text.len();
    if columns >= LEAST_TEXT_COLUMNS {
        text.push_str(&fitting(&function.label, columns));
    }
    buffer.set_stringn(column, row, text, place.width.into(), style);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_seen() {
        for rows in 1..60 {
            for height in 1..40 {
                for selected in 0..rows {
                    let first = first_row(rows, height, selected);
                    assert!(first <= selected && selected < first + height, "{rows} {height} {selected}");
                    assert!(first == 0 || first + height <= rows);
                }
            }
        }
    }

    #[test]
    fn neighbours_differ_and_names_keep_their_shade() {
        let place = |column| Place { node: 0, column, width: 5 };
        let alone = shade("name", None, &place(5));
        assert_eq!(shade("name", Some((4, alone)), &place(5)), alone);
        assert_ne!(shade("name", Some((5, alone)), &place(5)), alone);
    }
}
