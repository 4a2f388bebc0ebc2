//! The table: a row for each kernel.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Row, check::COLUMNS, freshness};
use crate::document;

/// The table in Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    let mut text = format!("| Linux | {names} | s |\n|---|{}---:|\n", "---:|".repeat(COLUMNS.len()));
    for row in rows {
        let cells = row.cells.iter().map(|cell| cell.as_deref().unwrap_or("**wrong**"));
        let cells = cells.collect::<Vec<_>>().join(" | ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {cells} | {:.0} |", row.kernel, row.time.as_secs_f64());
    }
    text
}

/// A line for each cell that is not as it must be.
pub(super) fn failures(rows: &[Row]) -> Vec<String> {
    let row_failures = |row: &Row| {
        let cells = COLUMNS.iter().zip(&row.cells);
        let wrong = cells.filter_map(|((name, _), cell)| Some((*name, cell.as_ref().err()?)));
        wrong.map(|(name, error)| format!("Linux {}, {name}: {error:#}", row.kernel)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(row_failures).collect()
}

/// Puts the table into docs/kernels.md, in place of the last one.
pub(super) fn write(rows: &[Row], digest: &str) -> Result<()> {
    document::write(
        "docs/kernels.md",
        "kernel-matrix",
        &format!("{}\n\n{}", freshness::note(digest), table(rows)),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;

    use super::*;

    #[test]
    fn failures_are_listed_below_the_table() {
        let mut cells: Vec<Result<String>> = COLUMNS.iter().map(|_| Ok("1".to_owned())).collect();
        cells[0] = Err(anyhow!("why"));
        let rows = [Row { kernel: "6.1.0".to_owned(), time: Duration::from_secs(9), cells }];
        let text = table(&rows);
        assert!(text.ends_with("| 1 | 9 |\n") && text.contains("| 6.1.0 | **wrong** | 1 |"), "{text}");
        assert_eq!(failures(&rows), [format!("Linux 6.1.0, {}: why", COLUMNS[0].0)]);
    }
}
