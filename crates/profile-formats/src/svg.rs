//! SVG flame graphs, drawn by inferno, with titles that describe the measurement.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
};

use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{PaletteMap, parse_hex_color},
};

use crate::{
    OutputOptions,
    differential::Counts,
    folded, label, svg_labels,
    title::{subtitle, title},
};
use profiler_findings::{WaitCause, WaitGroup};
use profiler_profile::{Difference, FrameKind, Profile};

/// The width of a character as a part of the font's size, for the length of labels where no script runs, as in a PDF. DejaVu
/// Sans Mono, the widest of the usual fonts, has 0.602, and inferno starts a label 3 pixels inside its box: with its own 0.59
/// long labels reach into the next box.
const FONT_WIDTH: f64 = 0.63;

/// Writes the flame graph of a profile.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    // Annotated names are distinct for each kind, and so are their colours; inferno removes the annotations.
    let annotated = OutputOptions { annotate: true, ..*options };
    let mut drawing = drawing(profile);
    // Paths too narrow to be drawn are cut first, because inferno holds several copies of its input.
    let lines = folded::visible_lines(profile, &annotated, drawing.min_width);
    let unit = samples_per_unit(lines.iter().map(|(_, count)| *count));
    let lines: Vec<String> =
        lines.into_iter().map(|(line, count)| format!("{line} {}", count / unit)).collect();
    let mut colours = colours(profile, &annotated, &lines);
    drawing.palette_map = Some(&mut colours);
    draw(&mut drawing, &lines, to)
}

/// Writes a differential flame graph: widths of the later profile, red for more samples and blue for fewer.
pub(super) fn write_difference(
    difference: &Difference<'_>,
    lines: &BTreeMap<String, Counts>,
    to: impl Write,
) -> io::Result<()> {
    let unit = samples_per_unit(lines.values().flat_map(|Counts { before, after }| [*before, *after]));
    let lines: Vec<_> = lines
        .iter()
        .map(|(line, Counts { before, after })| format!("{line} {} {}", before / unit, after / unit))
        .collect();
    let mut drawing = drawing(difference.after());
    let before = label::clean(&title(difference.before())).into_owned();
    drawing.title = format!("{}, compared with {before}", drawing.title);
    draw(&mut drawing, &lines, to)
}

/// The number of samples that one unit of the picture represents: more than one where the total exceeds the signed
/// 64-bit numbers of inferno.
fn samples_per_unit(counts: impl Iterator<Item = u64>) -> u64 {
    const MAX_TOTAL: u128 = i64::MAX as u128;
    let total: u128 = counts.map(u128::from).sum();
    u64::try_from(total / (MAX_TOTAL + 1) + 1).unwrap_or(u64::MAX)
}

fn draw(drawing: &mut Options<'_>, lines: &[String], to: impl Write) -> io::Result<()> {
    let mut picture = Vec::new();
    let drawn = flamegraph::from_lines(drawing, lines.iter().map(String::as_str), &mut picture);
    // Without samples inferno draws an empty picture and returns an error; all lines are valid.
    drawn.or_else(|error| match error.kind() {
        io::ErrorKind::InvalidData => Ok(()),
        _ => Err(error),
    })?;
    svg_labels::write(&String::from_utf8_lossy(&picture), to)
}

fn drawing(profile: &Profile) -> Options<'static> {
    let mut options = Options::default();
    options.font_width = FONT_WIDTH;
    options.title = label::clean(&title(profile)).into_owned();
    options.subtitle = Some(label::clean(&subtitle(profile)).into_owned());
    folded::unit_name(profile).clone_into(&mut options.count_name);
    // The shortest form of a name begins with the method.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Equal profiles give equal pictures.
    options.deterministic = true;
    options
}

/// A colour for each name in the lines, by the kind of its frame. The hues are distinct for colour-blind readers (Okabe and Ito,
/// "Color Universal Design"); the shades separate neighbours.
fn colours(profile: &Profile, options: &OutputOptions, lines: &[String]) -> PaletteMap {
    const KERNEL: [&str; 3] = ["#eea83a", "#f2b75c", "#e69f24"];
    const JIT: [&str; 3] = ["#56c49f", "#6fcfae", "#45b892"];
    const INLINED: [&str; 3] = ["#dba6c4", "#e2b5cf", "#d397b9"];
    const NATIVE: [&str; 3] = ["#86c3ea", "#9acdee", "#75b9e5"];
    const WAIT_LOCK: [&str; 3] = ["#e5736b", "#e8837c", "#e2635a"];
    const WAIT_PARTNER: [&str; 3] = ["#e9a678", "#edb48c", "#e59864"];
    const WAIT_IO: [&str; 3] = ["#b597e3", "#c0a6e7", "#aa88df"];
    const WAIT_CPU: [&str; 3] = ["#ecd25c", "#efd972", "#e9cb46"];
    const WAIT_COLLECTION: [&str; 3] = ["#5bc0b8", "#70c8c1", "#4ab8b0"];
    const WAIT_REST: [&str; 3] = ["#c6ccd3", "#d0d5db", "#bcc3cb"];
    let kinds: HashMap<String, FrameKind> = profile
        .frame_views()
        .map(|frame| {
            let mut name = String::new();
            label::push_frame(frame, options, &mut name);
            (name, frame.kind())
        })
        .collect();
    let mut colours = PaletteMap::default();
    for line in lines {
        let stack = line.rsplit_once(' ').map_or("", |(stack, _)| stack);
        for name in stack.split(';') {
            let shades = match kinds.get(name).copied().unwrap_or(FrameKind::Native) {
                FrameKind::Kernel => KERNEL,
                FrameKind::Jit | FrameKind::Precompiled => JIT,
                FrameKind::Inlined => INLINED,
                FrameKind::Wait => match WaitCause::of_frame_name(name).map(WaitCause::group) {
                    Some(WaitGroup::Lock) => WAIT_LOCK,
                    Some(WaitGroup::Partner) => WAIT_PARTNER,
                    Some(WaitGroup::Io) => WAIT_IO,
                    Some(WaitGroup::Cpu) => WAIT_CPU,
                    Some(WaitGroup::Collection) => WAIT_COLLECTION,
                    Some(WaitGroup::Rest) | None => WAIT_REST,
                },
                _ => NATIVE,
            };
            let shade =
                name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            if let Some(colour) = parse_hex_color(shades[shade % shades.len()]) {
                colours.insert(name, colour);
            }
        }
    }
    colours
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::Header;
    use profiler_profile::{
        Event, Frame, ProfileBuilder, Reason, Sampling, StackEnd, Symbolization, shape::Shape,
    };

    fn svg(profile: &Profile) -> String {
        let mut bytes = Vec::new();
        write(profile, &OutputOptions::default(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn profile_of(name: &str) -> Profile {
        let mut builder = ProfileBuilder::default();
        let name = builder.string(name);
        let frame = builder.frame(Frame {
            name,
            kind: FrameKind::Kernel,
            module: None,
            address: ElfAddress(0),
            location: None,
            symbolization: Symbolization::Address(Reason::NoMapping),
        });
        let stack = builder.stack(vec![frame], StackEnd::Unknown);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.event(Event::at_frequency("cpu-clock", 99));
        builder.sample(0, 0, thread, stack, 5);
        builder.finish(Header {
            target: "pid 1 (a<b)".to_owned(),
            duration_ns: 1_500_000_000,
            cpus: 2,
            ..Header::default()
        })
    }

    #[test]
    fn the_titles_describe_the_measurement() {
        let svg = svg(&profile_of("f"));
        assert!(svg.contains("On-CPU: pid 1 (a&lt;b)"));
        assert!(svg.contains("cpu-clock at 99 Hz on 2 CPUs, 1.5 s, 5 samples, 0 lost"));
    }

    #[test]
    fn the_titles_list_the_edits() {
        let profile = profile_of("f").shaped(&Shape { ignore: "g".parse().ok(), ..Shape::default() });
        assert!(svg(&profile).contains("5 samples, 0 lost, 5 shown: --ignore g"));
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let svg = svg(&profile_of("<script>alert(1)</script>&\u{1b}[0m\u{0}"));
        assert!(svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"));
        assert!(!svg.contains("<script>alert") && !svg.contains('\u{1b}') && !svg.contains('\u{0}'));
        assert!(!svg.contains("_[k]"), "the annotation is for the colour alone");
    }

    #[test]
    fn equal_profiles_give_equal_pictures() {
        assert_eq!(svg(&profile_of("f")), svg(&profile_of("f")));
    }

    #[test]
    fn an_empty_profile_gives_a_picture_that_says_so() {
        let svg = svg(&ProfileBuilder::default().finish(Header::default()));
        assert!(svg.contains("</svg>") && svg.contains("ERROR"));
    }

    #[test]
    fn a_difference_to_an_empty_profile_gives_a_picture() {
        let nothing = ProfileBuilder::default().finish(Header::default());
        let mut bytes = Vec::new();
        let before = profile_of("f");
        let difference = Difference::between(&before, &nothing);
        crate::Format::Svg.write_difference(&difference, &OutputOptions::default(), &mut bytes).unwrap();
        assert!(String::from_utf8(bytes).unwrap().contains("ERROR"));
    }

    #[test]
    fn waiting_is_titled_so_and_its_unit_is_time() {
        let mut builder = ProfileBuilder::default();
        builder
            .event(Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 1_000_000 } });
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        builder.sample(0, 0, thread, stack, 2_500_000);
        let svg =
            svg(&builder.finish(Header { target: "pid 1 (a)".to_owned(), cpus: 1, ..Header::default() }));
        assert!(svg.contains("Waiting: pid 1 (a)") && svg.contains("(2,500 us, 100.00%)"), "{svg}");
        assert!(svg.contains("off-cpu of at least 1000 us on 1 CPUs"), "{svg}");
    }
}
