//! Measures scenarios in turns, so that a change of the machine's speed meets each of them.

use anyhow::{Result, anyhow};

/// A scenario of a table, and the figures of its runs in the order of the columns.
pub(crate) struct Row<const N: usize> {
    pub(crate) title: String,
    /// A figure that a tool does not report is not a number.
    pub(crate) runs: Vec<[f64; N]>,
}

impl<const N: usize> Row<N> {
    /// The median of each figure.
    pub(crate) fn medians(&self) -> [f64; N] {
        let mut column = 0..N;
        [0.0; N].map(|_| {
            let column = column.next().unwrap_or_default();
            median(self.runs.iter().map(|run| run[column]).collect())
        })
    }

    pub(crate) fn largest(&self, column: usize) -> f64 {
        self.runs.iter().map(|run| run[column]).fold(f64::NAN, f64::max)
    }
}

/// Measures each scenario once in each run.
pub(crate) fn in_turns<S: AsRef<str>, T, const N: usize>(
    group: &str,
    runs: usize,
    scenarios: &[(S, T)],
    measure: impl FnMut(&T) -> Result<[f64; N]>,
) -> Result<Vec<Row<N>>> {
    let titles = scenarios.iter().map(|(title, _)| title.as_ref().to_owned());
    let rows = outcomes(group, runs, scenarios, measure).into_iter().zip(titles);
    rows.map(|(runs, title)| Ok(Row { title, runs: runs.map_err(|reason| anyhow!(reason))? })).collect()
}

/// Like [`in_turns`]. A tool that does not work on this machine is left out.
pub(crate) fn in_turns_if_possible<S: AsRef<str>, T, const N: usize>(
    group: &str,
    runs: usize,
    scenarios: &[(S, T)],
    measure: impl FnMut(&T) -> Result<[f64; N]>,
) -> Vec<Row<N>> {
    let titles = scenarios.iter().map(|(title, _)| title.as_ref().to_owned());
    let mut rows = Vec::new();
    for (outcome, title) in outcomes(group, runs, scenarios, measure).into_iter().zip(titles) {
        match outcome {
            Ok(runs) => rows.push(Row { title, runs }),
            Err(reason) => eprintln!("left out of the table: {title}: {reason}"),
        }
    }
    rows
}

/// The results of all runs of each scenario, or why one of them failed, which is then not run again.
pub(crate) fn outcomes<S: AsRef<str>, T, F>(
    group: &str,
    runs: usize,
    scenarios: &[(S, T)],
    mut measure: impl FnMut(&T) -> Result<F>,
) -> Vec<Result<Vec<F>, String>> {
    let mut outcomes: Vec<_> = scenarios.iter().map(|_| Ok(Vec::new())).collect();
    for run in 1..=runs {
        for ((title, scenario), outcome) in scenarios.iter().zip(&mut outcomes) {
            let Ok(done) = outcome else { continue };
            eprintln!("{group}, run {run}: {}", title.as_ref());
            match measure(scenario) {
                Ok(figures) => done.push(figures),
                Err(error) => *outcome = Err(format!("{error:#}")),
            }
        }
    }
    outcomes
}

/// The median of the values that are numbers.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| !value.is_nan());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn the_median_of_two_is_their_mean() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, f64::NAN, 2.0, 9.0]), 3.0);
        assert!(median(vec![f64::NAN]).is_nan());
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let row = Row { title: String::new(), runs: vec![[1.0, 30.0], [3.0, 10.0], [2.0, 20.0]] };
        assert_eq!(row.medians(), [2.0, 20.0]);
        assert_eq!(row.largest(0), 3.0);
    }

    #[test]
    fn a_scenario_that_fails_is_not_run_again() {
        let mut measured = Vec::new();
        let outcomes = outcomes("group", 2, &[("first", 1), ("second", 2)], |number| {
            measured.push(*number);
            ensure!(*number == 2, "it is odd");
            Ok(*number)
        });
        assert_eq!(measured, [1, 2, 2]);
        assert_eq!(outcomes, [Err("it is odd".to_owned()), Ok(vec![2, 2])]);
    }
}
