//! Which part of the terminal is for what.

use ratatui::layout::Rect;

/// The smallest terminal that is of use.
pub(super) const LEAST_COLUMNS: u16 = 40;
pub(super) const LEAST_ROWS: u16 = 10;

/// What is seen of the graph and the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Layout {
    #[default]
    Both,
    Graph,
    List,
}

/// The parts, from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Areas {
    /// What is measured, and how.
    pub(super) status: Rect,
    pub(super) graph: Rect,
    /// With a line of headings.
    pub(super) list: Rect,
    /// What is selected.
    pub(super) details: Rect,
    /// What is typed, what is said, or the keys.
    pub(super) bottom: Rect,
}

impl Areas {
    /// The parts of a terminal, unless it is too small.
    pub(super) fn of(terminal: Rect, layout: Layout) -> Option<Self> {
        const STATUS_ROWS: u16 = 2;
        const OTHER_ROWS: u16 = STATUS_ROWS + 2;
        if terminal.width < LEAST_COLUMNS || terminal.height < LEAST_ROWS {
            return None;
        }
        let middle = terminal.height - OTHER_ROWS;
        let graph_rows = match layout {
            Layout::Both => middle - middle / 3,
            Layout::Graph => middle,
            Layout::List => 0,
        };
        let mut row = terminal.y;
        let mut next = |height| {
            let area = Rect { y: row, height, ..terminal };
            row += height;
            area
        };
        Some(Self {
            status: next(STATUS_ROWS),
            graph: next(graph_rows),
            list: next(middle - graph_rows),
            details: next(1),
            bottom: next(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fill_the_terminal() {
        for layout in [Layout::Both, Layout::Graph, Layout::List] {
            for rows in LEAST_ROWS..100 {
                let terminal = Rect::new(0, 0, LEAST_COLUMNS, rows);
                let Areas { status, graph, list, details, bottom } = Areas::of(terminal, layout).unwrap();
                let parts = [status, graph, list, details, bottom];
                assert!(parts.windows(2).all(|pair| pair[0].bottom() == pair[1].y));
                assert_eq!((status.y, bottom.bottom()), (0, rows));
                assert_eq!(graph.height == 0, layout == Layout::List);
                assert_eq!(list.height == 0, layout == Layout::Graph);
            }
        }
    }

    #[test]
    fn a_terminal_can_be_too_small() {
        for (columns, rows) in [(LEAST_COLUMNS - 1, 50), (80, LEAST_ROWS - 1), (0, 0)] {
            assert_eq!(Areas::of(Rect::new(0, 0, columns, rows), Layout::Both), None);
        }
    }
}
