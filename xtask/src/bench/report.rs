//! Tables in Markdown, and the figures that exceed their budgets.

use std::fmt::Write as _;

use super::in_turns::Row;

/// A column of figures.
#[derive(Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    /// The budget of each figure.
    most: Option<f64>,
}

impl Column {
    pub(super) const fn new(title: &'static str) -> Self {
        Self { title, most: None }
    }

    /// A column whose figures have a budget.
    pub(super) const fn at_most(title: &'static str, most: f64) -> Self {
        Self { title, most: Some(most) }
    }
}

/// Tables in Markdown, and the figures in them that exceed a budget.
#[derive(Default)]
pub(crate) struct Report {
    pub(super) markdown: String,
    /// One line for each: the name of the figure, its value and the budget.
    pub(crate) exceeded_budgets: Vec<String>,
}

impl Report {
    /// A report that begins with a paragraph.
    pub(super) fn new(paragraph: &str) -> Self {
        Self { markdown: format!("{paragraph}\n"), exceeded_budgets: Vec::new() }
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.markdown, "\n{text}");
    }

    /// Adds a table of medians, and records figures that are larger than the budget of their column.
    pub(super) fn table<const N: usize>(&mut self, title: &str, columns: &[Column; N], rows: &[Row<N>]) {
        self.heading(title, &columns.map(|column| column.title));
        for row in rows {
            let figures = row.medians();
            self.row(&row.title, &figures);
            for (column, figure) in columns.iter().zip(figures) {
                if let Some(most) = column.most {
                    self.at_most(&format!("{title}: {}, {}", row.title, column.title), figure, most);
                }
            }
        }
    }

    /// Adds the heading of a table: the column of titles, and the columns of figures.
    pub(super) fn heading(&mut self, titles: &str, columns: &[impl AsRef<str>]) {
        let columns = columns.iter().map(AsRef::as_ref);
        self.heading_of(1, &[titles].into_iter().chain(columns).collect::<Vec<_>>());
    }

    /// Adds the heading of a table whose first `texts` columns are no figures.
    pub(super) fn heading_of(&mut self, texts: usize, columns: &[&str]) {
        let alignments = "---|".repeat(texts) + &"---:|".repeat(columns.len() - texts);
        let _ = writeln!(self.markdown, "\n| {} |\n|{alignments}", columns.join(" | "));
    }

    /// Adds a row of a table.
    pub(super) fn row(&mut self, title: &str, figures: &[f64]) {
        let cells: Vec<_> = figures.iter().copied().map(number).collect();
        self.row_of(title, &cells);
    }

    /// Adds a row of a table whose figures have a format of their own.
    pub(super) fn row_of(&mut self, title: &str, cells: &[String]) {
        let _ = writeln!(self.markdown, "| {title} | {} |", cells.join(" | "));
    }

    /// Records a figure that is larger than its budget, or not a number.
    pub(crate) fn at_most(&mut self, what: &str, value: f64, budget: f64) {
        self.check(what, value, budget, value <= budget);
    }

    /// Records a figure that is smaller than its budget, or not a number.
    pub(crate) fn at_least(&mut self, what: &str, value: f64, budget: f64) {
        self.check(what, value, budget, value >= budget);
    }

    fn check(&mut self, what: &str, value: f64, budget: f64, is_kept: bool) {
        if !is_kept {
            self.exceeded_budgets.push(format!("{what}: {} (budget {budget})", number(value)));
        }
    }
}

/// Rounded to three digits, because further ones differ between runs. A whole number has no decimals.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        unknown if unknown.is_nan() => "-".to_owned(),
        whole if whole.fract() == 0.0 => format!("{value:.0}"),
        small if small < 10.0 => format!("{value:.2}"),
        medium if medium < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.0, 0.0712, 4.25, 14.03, 173.4, 7.0, f64::NAN];
        assert_eq!(numbers.map(number), ["0", "0.07", "4.25", "14.0", "173", "7", "-"]);
    }

    #[test]
    fn a_table_has_texts_on_the_left_and_figures_on_the_right() {
        let mut report = Report::new("Measured.");
        report.heading_of(2, &["a", "b", "c"]);
        report.row("x | y", &[1.5]);
        assert_eq!(report.markdown, "Measured.\n\n| a | b | c |\n|---|---|---:|\n| x | y | 1.50 |\n");
    }

    #[test]
    fn a_table_has_medians_and_the_budgets_of_its_columns() {
        let mut report = Report::default();
        let rows = [Row { title: "r".to_owned(), runs: vec![[1.0, 3.0], [3.0, 5.0]] }];
        report.table("t", &[Column::new("a"), Column::at_most("b", 3.5)], &rows);
        assert_eq!(report.markdown, "\n| t | a | b |\n|---|---:|---:|\n| r | 2 | 4 |\n");
        assert_eq!(report.exceeded_budgets, ["t: r, b: 4 (budget 3.5)"]);
    }

    #[test]
    fn a_figure_beyond_its_budget_is_recorded() {
        let mut report = Report::default();
        report.at_most("CPU s", 0.5, 0.5);
        report.at_least("exact, %", 99.9, 99.9);
        assert_eq!(report.exceeded_budgets, [""; 0]);
        report.at_most("CPU s", 0.5, 0.4);
        report.at_least("exact, %", f64::NAN, 99.9);
        assert_eq!(report.exceeded_budgets, ["CPU s: 0.50 (budget 0.4)", "exact, %: - (budget 99.9)"]);
    }
}
