//! Runs tests, gives those that measure a second try, and reports failures, flaky tests and the slowest tests.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Result, bail};

use super::{
    junit::TestCase,
    nextest::{Nextest, Profile, Results},
};

/// The module of tests that measure, as in `.config/nextest.toml`.
const MEASURED: &str = "measured";

/// With more flaky tests a run fails.
const MAX_FLAKY_TESTS: usize = 2;

const SLOWEST: usize = 20;

/// Runs the selected tests. A test that measures and fails is run once more, alone, at the end: if it passes then, it is
/// flaky. `prepare` sets up the environment of both runs. Returns the results of the first run.
///
/// # Errors
/// If a test fails, or more than two are flaky.
pub(super) fn run(tests: Nextest, prepare: impl Fn(Nextest) -> Result<Nextest>) -> Result<Vec<TestCase>> {
    let results = prepare(tests)?.run()?;
    print!("{}", times(&results));
    let first = results.cases;
    let mut failed: Vec<_> = first.iter().filter(|case| case.has_failed).cloned().collect();
    let doubtful: Vec<_> = failed.extract_if(.., |case| measures(case)).collect();
    let second = if doubtful.is_empty() {
        Vec::new()
    } else {
        println!("\n{} tests that measure failed; they run once more", doubtful.len());
        prepare(Nextest::new(Profile::SecondTry).filter(&filter(&doubtful)))?.run()?.cases
    };
    let (flaky, again): (Vec<_>, Vec<_>) = doubtful.into_iter().partition(|case| passed(&second, case));
    failed.extend(again);
    print!("{}", report_of_flaky(&flaky, &second));
    judge(&failed, &flaky)?;
    Ok(first)
}

fn judge(failed: &[TestCase], flaky: &[TestCase]) -> Result<()> {
    let names = |cases: &[TestCase]| cases.iter().map(title).collect::<Vec<_>>().join("\n  ");
    if !failed.is_empty() {
        bail!("{} tests failed:\n  {}", failed.len(), names(failed));
    }
    if flaky.len() > MAX_FLAKY_TESTS {
        bail!("{} tests are flaky, more than {MAX_FLAKY_TESTS}:\n  {}", flaky.len(), names(flaky));
    }
    Ok(())
}

fn measures(case: &TestCase) -> bool {
    case.name.split("::").any(|module| module == MEASURED)
}

fn passed(second: &[TestCase], case: &TestCase) -> bool {
    same(second, case).is_some_and(|again| !again.has_failed)
}

fn same<'a>(second: &'a [TestCase], case: &TestCase) -> Option<&'a TestCase> {
    second.iter().find(|again| (&again.binary, &again.name) == (&case.binary, &case.name))
}

/// The expression that selects exactly these tests.
fn filter(cases: &[TestCase]) -> String {
    let one = |case: &TestCase| format!("(binary_id(={}) & test(={}))", case.binary, case.name);
    cases.iter().map(one).collect::<Vec<_>>().join(" + ")
}

fn title(case: &TestCase) -> String {
    format!("{} {}", case.binary, case.name)
}

/// Flaky tests with the outputs of both runs.
fn report_of_flaky(flaky: &[TestCase], second: &[TestCase]) -> String {
    let mut text = String::new();
    for case in flaky {
        let again = same(second, case).map_or("", |again| &again.output);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\nFLAKY: {}: failed, then passed alone\n--- the output of the failure\n{}\n--- the output of the second try\n{}",
            title(case),
            case.output.trim_end(),
            again.trim_end()
        );
    }
    text
}

/// The times of building, of all tests and of those that measure, and a table of the tests that took longest.
fn times(results: &Results) -> String {
    let mut cases: Vec<_> = results.cases.iter().collect();
    cases.sort_by_key(|case| std::cmp::Reverse(case.elapsed));
    let alone: Duration = cases.iter().filter(|case| measures(case)).map(|case| case.elapsed).sum();
    let mut text = format!(
        "\nbuilt in {:.1} s; {} tests ran in {:.1} s, {:.1} s of it those that measure, one at a time\n{:>8}  slowest tests\n",
        results.build.as_secs_f64(),
        cases.len(),
        results.run.as_secs_f64(),
        alone.as_secs_f64(),
        "seconds"
    );
    for case in cases.iter().take(SLOWEST) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:>8.1}  {}", case.elapsed.as_secs_f64(), title(case));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, seconds: u64, has_failed: bool) -> TestCase {
        let output = format!("output of {name}, {seconds}");
        let elapsed = Duration::from_secs(seconds);
        TestCase { binary: "package::program".to_owned(), name: name.to_owned(), elapsed, has_failed, output }
    }

    #[test]
    fn only_tests_in_a_module_of_measurements_measure() {
        assert!(
            measures(&case("measured::wall::a", 1, true)) && measures(&case("cpus::measured::a", 1, true))
        );
        assert!(!measures(&case("names::measured_names_are_right", 1, true)));
    }

    #[test]
    fn a_filter_selects_each_test_by_program_and_name() {
        let text = filter(&[case("a", 1, true), case("b", 1, true)]);
        assert_eq!(
            text,
            "(binary_id(=package::program) & test(=a)) + (binary_id(=package::program) & test(=b))"
        );
    }

    #[test]
    fn two_flaky_tests_pass_and_a_third_or_a_failure_does_not() {
        let flaky: Vec<_> = ["a", "b", "c"].map(|name| case(name, 1, true)).into();
        assert!(judge(&[], &flaky[..2]).is_ok());
        assert!(judge(&[], &flaky).unwrap_err().to_string().contains("3 tests are flaky"));
        assert!(
            judge(&flaky[..1], &[])
                .unwrap_err()
                .to_string()
                .contains("1 tests failed:\n  package::program a")
        );
    }

    #[test]
    fn a_flaky_test_is_reported_with_both_outputs() {
        let second = [case("a", 2, false)];
        assert!(passed(&second, &case("a", 1, true)) && !passed(&second, &case("b", 1, true)));
        let text = report_of_flaky(&[case("a", 1, true)], &second);
        assert!(text.contains("output of a, 1") && text.contains("output of a, 2"), "{text}");
    }

    #[test]
    fn the_slowest_test_is_the_first_row() {
        let results = |cases: &[TestCase]| Results {
            cases: cases.to_vec(),
            build: Duration::from_secs(60),
            run: Duration::from_secs(10),
        };
        let text = times(&results(&[case("short", 1, false), case("measured::long", 9, false)]));
        let rows: Vec<_> = text.lines().skip(3).collect();
        assert!(rows[0].ends_with("measured::long") && rows[1].ends_with("short"), "{text}");
        assert!(text.contains("built in 60.0 s; 2 tests ran in 10.0 s, 9.0 s of it those"), "{text}");
        assert!(times(&results(&[case("short", 1, false)])).contains(", 0.0 s of it those that measure"));
    }
}
