//! Differences of two profiles: differential folded stacks and the table of changed functions.

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
};

use super::{OutputOptions, folded, label, short_name::fitting_function, table::wrapped, title};
use profiler_profile::{
    Sampling,
    difference::{Change, Difference, FunctionChange},
};

/// Rows of the table.
const FUNCTIONS: usize = 25;

/// Columns before the name of a function.
const INDENT: usize = 52;

/// The minimum width of names, also on a narrower terminal.
const MIN_NAME_COLUMNS: usize = 24;

/// Samples of a call path in the earlier profile, scaled to the total of the later one, and in the later profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) before: u64,
    pub(super) after: u64,
}

/// Each distinct folded line of either profile with its counts.
pub(super) fn lines(difference: &Difference<'_>, options: &OutputOptions) -> BTreeMap<String, Counts> {
    let (before_total, after_total) = (difference.before().total_value(), difference.after().total_value());
    let scaled = |count: u64| {
        let scaled = u128::from(count) * u128::from(after_total) / u128::from(before_total.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let mut lines = BTreeMap::<String, Counts>::new();
    for (line, count) in folded::lines(difference.before(), options) {
        lines.entry(line).or_default().before = scaled(count);
    }
    for (line, count) in folded::lines(difference.after(), options) {
        lines.entry(line).or_default().after = count;
    }
    lines
}

pub(super) fn write_folded(
    difference: &Difference<'_>,
    options: &OutputOptions,
    to: impl Write,
) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for (line, Counts { before, after }) in lines(difference, options) {
        writeln!(to, "{line} {before} {after}")?;
    }
    to.flush()
}

pub(super) fn write_table(
    difference: &Difference<'_>,
    options: &OutputOptions,
    to: impl Write,
) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let width = options.width();
    for (side, profile) in [("before", difference.before()), ("after ", difference.after())] {
        let heading = format!("{side}  {}: {}", title::title(profile), title::subtitle(profile));
        wrapped(&label::clean(&heading), width).iter().try_for_each(|line| writeln!(to, "{line}"))?;
    }
    let unit = match difference.after().first_event().sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => "time",
        Sampling::Occurrences { .. } => "occurrences",
        Sampling::Sums { .. } => "the sum",
        _ => "samples",
    };
    let own = format!("self, % of {unit}");
    writeln!(to, "\n       {own:<33}total, %")?;
    writeln!(to, " before   after   change           before   after   function")?;
    let changed = |function: &FunctionChange<'_>| function.self_change.points() != 0.0;
    for function in difference.functions().iter().filter(|function| changed(function)).take(FUNCTIONS) {
        let columns = width.saturating_sub(INDENT).max(MIN_NAME_COLUMNS);
        let name = fitting_function(&label::name(function.name), function.module, columns);
        let [own, total] = [&function.self_change, &function.total_change];
        writeln!(
            to,
            "{} {:>+8.2} \u{b1}{:<6.2}{} {} {} {name}",
            sides(own),
            own.points(),
            own.noise_points(),
            mark(own),
            sides(total),
            mark(total)
        )?;
    }
    writeln!(
        to,
        "\n* more than noise, with 95 % confidence in each by itself; samples of one thread are not quite independent,\n  \
         so take what is near its \u{b1} for noise"
    )?;
    to.flush()
}

fn sides(change: &Change) -> String {
    format!("{:>7.2} {:>7.2}", change.before_percent(), change.after_percent())
}

fn mark(change: &Change) -> char {
    if change.is_beyond_noise() { '*' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use profiler_profile::{Profile, test_profile::folded};

    fn written(before: &Profile, after: &Profile, format: Format) -> String {
        let mut bytes = Vec::new();
        let difference = Difference::between(before, after);
        format.write_difference(&difference, &OutputOptions::default(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn before() -> Profile {
        folded(&[("p;main;parse", 60), ("p;main;read", 40)])
    }

    fn after() -> Profile {
        folded(&[("p;main;parse", 20), ("p;main;read", 15), ("p;main;write", 15)])
    }

    #[test]
    fn folded_lines_have_both_counts_of_the_same_total() {
        let text = written(&before(), &after(), Format::Folded);
        assert_eq!(text, "p;main;parse 30 20\np;main;read 20 15\np;main;write 0 15\n");
        let nothing = folded(&[]);
        assert_eq!(written(&nothing, &after(), Format::Folded).lines().next(), Some("p;main;parse 0 20"));
        assert_eq!(written(&before(), &nothing, Format::Folded).lines().next(), Some("p;main;parse 0 0"));
    }

    #[test]
    fn counts_of_any_size_are_scaled_to_the_same_total() {
        let (small, large) = (folded(&[("p;a", 3)]), folded(&[("p;a", u64::MAX)]));
        assert_eq!(written(&large, &small, Format::Folded), "p;a 3 3\n");
        assert_eq!(written(&small, &large, Format::Folded), format!("p;a {0} {0}\n", u64::MAX));
    }

    #[test]
    fn the_table_shows_changes_and_marks_noise() {
        let text = written(&before(), &after(), Format::Top);
        let row = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
        assert!(
            row("write").starts_with("   0.00   30.00   +30.00 \u{b1}") && row("write").contains('*'),
            "{text}"
        );
        assert!(row("read").contains("-10.00") && !row("read").contains('*'), "{text}");
        assert!(
            !text.contains(" main\n"),
            "a function without a change of its self samples is left out: {text}"
        );
    }

    #[test]
    fn the_picture_is_red_and_blue() {
        let svg = written(&before(), &after(), Format::Svg);
        let fill = |name: &str| {
            let group = svg.split("<g>").find(|group| group.contains(&format!("<title>{name} ("))).unwrap();
            let colour = group.split("fill=\"rgb(").nth(1).unwrap().split(')').next().unwrap();
            colour.split(',').map(|part| part.parse().unwrap()).collect::<Vec<u8>>()
        };
        let (more, less) = (fill("write"), fill("parse"));
        assert!(more[0] > more[2] && less[0] < less[2], "{more:?} {less:?}");
    }

    #[test]
    fn other_formats_refuse_a_difference() {
        for &format in Format::ALL {
            let (before, after) = (before(), after());
            let difference = Difference::between(&before, &after);
            let result = format.write_difference(&difference, &OutputOptions::default(), Vec::new());
            assert_eq!(result.is_ok(), Format::OF_DIFFERENCES.contains(&format));
        }
    }
}
