//! Layout of the live view: divides the terminal into status, graph, list, details and bottom line.

use ratatui::layout::Rect;

/// Width and height of the smallest supported terminal.
pub(super) const MIN_COLUMNS: u16 = 40;
pub(super) const MIN_ROWS: u16 = 10;

/// Whether the graph, the list or both are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Layout {
    #[default]
    Both,
    Graph,
    List,
}

/// The areas, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Areas {
    /// The target and the state of sampling.
    pub(super) status: Rect,
    /// A finding; it has no rows where no finding is shown.
    pub(super) finding: Rect,
    pub(super) graph: Rect,
    /// The hot functions, with a line of headings.
    pub(super) list: Rect,
    /// The selected function.
    pub(super) details: Rect,
    /// The prompt, a message or the keys.
    pub(super) bottom: Rect,
}

impl Areas {
    /// Divides a terminal; `None` if it is too small.
    pub(super) fn new(terminal: Rect, layout: Layout, has_finding: bool) -> Option<Self> {
        const STATUS_ROWS: u16 = 2;
        let finding_rows = u16::from(has_finding);
        let other_rows = STATUS_ROWS + finding_rows + 2;
        if terminal.width < MIN_COLUMNS || terminal.height < MIN_ROWS {
            return None;
        }
        let middle = terminal.height - other_rows;
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
            finding: next(finding_rows),
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
    fn the_areas_fill_the_terminal() {
        for layout in [Layout::Both, Layout::Graph, Layout::List] {
            for rows in MIN_ROWS..100 {
                let terminal = Rect::new(0, 0, MIN_COLUMNS, rows);
                let areas = Areas::new(terminal, layout, rows % 2 == 0).unwrap();
                let Areas { status, finding, graph, list, details, bottom } = areas;
                let parts = [status, finding, graph, list, details, bottom];
                assert!(parts.windows(2).all(|pair| pair[0].bottom() == pair[1].y));
                assert_eq!(finding.height, (rows + 1) % 2);
                assert_eq!((status.y, bottom.bottom()), (0, rows));
                assert_eq!(graph.height == 0, layout == Layout::List);
                assert_eq!(list.height == 0, layout == Layout::Graph);
            }
        }
    }

    #[test]
    fn a_terminal_below_the_minimum_has_no_areas() {
        for (columns, rows) in [(MIN_COLUMNS - 1, 50), (80, MIN_ROWS - 1), (0, 0)] {
            assert_eq!(Areas::new(Rect::new(0, 0, columns, rows), Layout::Both, false), None);
        }
    }
}
