//! Differences of two profiles: differential folded stacks and the table of changed functions.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufWriter, Write},
};

use super::{OutputOptions, folded, label, short_name::fitting_function, table::wrapped, title};
use profiler_profile::{
    Event, FrameKind, Profile, Sampling,
    difference::{Change, Difference, FunctionChange},
};

/// Rows of the tables, and of the one of significant changes.
const FUNCTIONS: usize = 25;
const SIGNIFICANT: usize = 15;

const NS_PER_S: f64 = 1e9;

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

/// Writes the totals, the functions whose share of the time changed by more than noise, and other functions whose own share changed.
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
    writeln!(to, "\n{}", totals(difference))?;
    let unit = match difference.after().first_event().sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => "time",
        Sampling::Occurrences { .. } => "occurrences",
        Sampling::Sums { .. } => "the sum",
        _ => "samples",
    };
    let functions = difference.functions();
    let significant = significant_changes(difference, &functions);
    let heading = format!("changed by more than noise, % of {unit}");
    write_rows(&heading, &significant, width, &mut to)?;
    let is_shown =
        |function: &FunctionChange<'_>| significant.iter().any(|shown| std::ptr::eq(*shown, function));
    let changed =
        |function: &&FunctionChange<'_>| function.self_change.points() != 0.0 && !is_shown(function);
    let others: Vec<_> = functions.iter().filter(changed).take(FUNCTIONS - significant.len()).collect();
    write_rows(&format!("other changes, by self, % of {unit}"), &others, width, &mut to)?;
    writeln!(
        to,
        "\n* more than noise, with 95 % confidence in each by itself; samples of one thread are not quite independent,\n  \
         so take what is near its \u{b1} for noise"
    )?;
    to.flush()
}

/// Writes functions with their shares of both profiles.
fn write_rows(
    heading: &str,
    functions: &[&FunctionChange<'_>],
    width: usize,
    to: &mut impl Write,
) -> io::Result<()> {
    if functions.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n{heading}")?;
    writeln!(to, "              total                      self")?;
    writeln!(to, " before   after   change           before   after   function")?;
    let columns = width.saturating_sub(INDENT).max(MIN_NAME_COLUMNS);
    for function in functions {
        let name = fitting_function(&label::name(function.name), function.module, columns);
        let [own, total] = [&function.self_change, &function.total_change];
        let noise = format!("{:>+8.2} \u{b1}{:<6.2}{}", total.points(), total.noise_points(), mark(total));
        writeln!(to, "{} {noise} {} {} {name}", sides(total), sides(own), mark(own))?;
    }
    Ok(())
}

/// What changed in all: the average number of threads at a time where the event measures time, else the number each second.
fn totals(difference: &Difference<'_>) -> String {
    let event = difference.after().first_event();
    let profiles = [difference.before(), difference.after()];
    let values = profiles.map(Profile::total_value);
    let amounts = profiles.map(|profile| title::value_text(profile.first_event(), profile.total_value()));
    let durations = difference.durations_ns().map(|ns| ns as f64);
    let amounts = format!("{} -> {}", amounts[0], amounts[1]);
    if durations.contains(&0.0) {
        return format!("total  {amounts}");
    }
    let rate = |side: usize| {
        let value = values[side] as f64;
        match profiles[side].first_event().unit_ns() {
            Some(unit_ns) => value * unit_ns as f64 / durations[side],
            None => value * NS_PER_S / durations[side],
        }
    };
    let (before, after) = (rate(0), rate(1));
    let what = match event.unit_ns() {
        Some(_) if event.name == Event::CPU_CLOCK => "CPUs",
        Some(_) => "threads at a time",
        None => "each second",
    };
    let factor = if before > 0.0 { format!(", {:.2} times as much", after / before) } else { String::new() };
    format!("total  {before:.2} -> {after:.2} {what}{factor} ({amounts})")
}

/// The functions of the program whose total share changed by more than noise, the largest change first; of those in the same samples, the
/// outermost one and then its callees. Functions in nearly all stacks, of the kernel and without a symbol are left out.
fn significant_changes<'a, 'b>(
    difference: &Difference<'_>,
    functions: &'b [FunctionChange<'a>],
) -> Vec<&'b FunctionChange<'a>> {
    let distances = distances_from_root(difference);
    let mut found: Vec<_> = functions
        .iter()
        .filter_map(|function| Some((function, *distances.get(&(function.name, function.module))?)))
        .filter(|(function, _)| {
            function.total_change.is_beyond_noise() && !function.total_change.is_of_nearly_all()
        })
        .collect();
    let size = |function: &FunctionChange<'_>| function.total_change.points().abs();
    found.sort_by(|(a, a_distance), (b, b_distance)| {
        size(b).total_cmp(&size(a)).then_with(|| a_distance.cmp(b_distance))
    });
    found.into_iter().map(|(function, _)| function).take(SIGNIFICANT).collect()
}

/// The smallest distance of each function of the program from the root of a stack.
fn distances_from_root<'a>(difference: &Difference<'a>) -> HashMap<(&'a str, &'a str), usize> {
    let mut distances = HashMap::new();
    for stack in [difference.before(), difference.after()].into_iter().flat_map(Profile::stack_views) {
        for (distance, frame) in stack.frames().rev().enumerate() {
            if frame.source().is_ok() && !matches!(frame.kind(), FrameKind::Kernel | FrameKind::Label) {
                let smallest = distances.entry((frame.name(), frame.module_name())).or_insert(distance);
                *smallest = distance.min(*smallest);
            }
        }
    }
    distances
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
    use profiler_profile::{Header, ProfileBuilder, Sample, StackEnd, test_profile::folded};

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
    fn the_table_begins_with_the_totals() {
        let line = |difference: Difference<'_>| {
            let mut bytes = Vec::new();
            Format::Top.write_difference(&difference, &OutputOptions::default(), &mut bytes).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            text.lines().find(|line| line.starts_with("total ")).unwrap().to_owned()
        };
        let profile = |samples| {
            let mut builder = ProfileBuilder::default();
            let event = builder.event(Event::at_frequency(Event::CPU_CLOCK, 100));
            let process = builder.process(1, "p");
            let thread = builder.thread(process, 1, "p");
            let stack = builder.stack(Vec::new(), StackEnd::Empty);
            let (cpu, time_ns, state) = (0, 0, None);
            builder.add_sample(Sample { time_ns, cpu, thread, stack, event, state, value: samples });
            builder.finish(Header { duration_ns: 10_000_000_000, ..Header::default() })
        };
        let (before, after) = (profile(131), profile(271));
        let difference = Difference::between(&before, &after);
        assert_eq!(line(difference), "total  0.13 -> 0.27 CPUs, 2.07 times as much (131 -> 271)");
        let halves = difference.in_times([10_000_000_000, 5_000_000_000]);
        assert_eq!(line(halves), "total  0.13 -> 0.54 CPUs, 4.14 times as much (131 -> 271)");
        assert_eq!(line(difference.in_times([0, 0])), "total  131 -> 271");
    }

    #[test]
    fn functions_whose_total_changed_most_are_the_first_rows() {
        let before = folded(&[("p;main;serve;parse", 500), ("p;main;serve;send", 500)]);
        let after = folded(&[
            ("p;main;serve;parse;convert;copy", 900),
            ("p;main;serve;send", 100),
            ("p;main;log", 3),
        ]);
        let text = written(&before, &after, Format::Top);
        let position = |name: &str| text.lines().position(|line| line.ends_with(&format!(" {name}")));
        assert!(position("convert") < position("copy"), "callers precede callees: {text}");
        assert!(position("copy") < position("parse"), "{text}");
        assert!(position("log") > position("parse"), "changes within noise are last: {text}");
        assert_eq!(position("serve"), None, "it is in nearly all stacks: {text}");
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
