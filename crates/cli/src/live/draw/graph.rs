//! Draws the flame graph: a box for each function on each path.

use profiler_profile_formats::fitting_name;
use ratatui::{buffer::Buffer, layout::Rect};

use crate::live::{
    box_layout::{BoxLayout, FlameBox},
    palette::{Emphasis, Palette, SHADES},
    state::{LiveState, Pane},
    tree::NodeId,
};

/// The left edge of a box, where colours do not distinguish neighbours.
const EDGE: &str = "|";

/// Narrower boxes have no text.
const MIN_TEXT_COLUMNS: usize = 3;

pub(super) fn draw(state: &LiveState, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let selected = state.graph.selected(&state.tree);
    let boxes = BoxLayout::new(&state.tree, state.graph.zoomed(&state.tree), area.width);
    let selected_row = boxes.find(selected).map_or(0, |(row, _)| row);
    let first = first_row(boxes.rows().len(), area.height.into(), selected_row);
    for (row, row_boxes) in (area.y..area.bottom()).zip(boxes.rows().iter().skip(first)) {
        let mut neighbour = None;
        for flame_box in row_boxes {
            let shade = shade(&state.tree.function(flame_box.node).label, neighbour, flame_box);
            neighbour = Some((flame_box.column + flame_box.width, shade));
            let emphasis = emphasis(state, flame_box.node, selected);
            draw_box(state, palette, *flame_box, (area.x, row), shade, emphasis, buffer);
        }
    }
}

/// The first row that is drawn. The selected row is in the middle, except near the ends.
fn first_row(rows: usize, height: usize, selected: usize) -> usize {
    selected.saturating_sub(height / 2).min(rows.saturating_sub(height))
}

/// The shade of a box: derived from its name, or the next shade if its left neighbour has the same one.
fn shade(label: &str, neighbour: Option<(u16, usize)>, flame_box: &FlameBox) -> usize {
    let shade =
        label.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % SHADES;
    match neighbour {
        Some((column, neighbour_shade)) if column == flame_box.column && neighbour_shade == shade => {
            (shade + 1) % SHADES
        }
        _ => shade,
    }
}

fn emphasis(state: &LiveState, node: NodeId, selected: NodeId) -> Emphasis {
    if node == selected && state.pane == Pane::Graph {
        return Emphasis::Selected;
    }
    match &state.search {
        Some(search) if !search.matches(state.tree.node(node).function) => Emphasis::Faded,
        _ => Emphasis::None,
    }
}

fn draw_box(
    state: &LiveState,
    palette: Palette,
    flame_box: FlameBox,
    (left, row): (u16, u16),
    shade: usize,
    emphasis: Emphasis,
    buffer: &mut Buffer,
) {
    let function = state.tree.function(flame_box.node);
    let style = palette.style(function.kind, shade, emphasis);
    let column = left + flame_box.column;
    buffer.set_style(Rect::new(column, row, flame_box.width, 1), style);
    let mut text = if palette.has_shades() { String::new() } else { EDGE.to_owned() };
    let columns = usize::from(flame_box.width) - text.len();
    if columns >= MIN_TEXT_COLUMNS {
        text.push_str(&fitting_name(&function.label, columns));
    }
    buffer.set_stringn(column, row, text, flame_box.width.into(), style);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_drawn() {
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
        let flame_box = |column| FlameBox { node: 0, column, width: 5 };
        let own_shade = shade("name", None, &flame_box(5));
        assert_eq!(shade("name", Some((4, own_shade)), &flame_box(5)), own_shade);
        assert_ne!(shade("name", Some((5, own_shade)), &flame_box(5)), own_shade);
    }
}
