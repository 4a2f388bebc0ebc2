//! Tests flame graphs as PNG and PDF, converted by librsvg and read by poppler.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler::Format;
use profiler_profile::test_profile::folded;

use crate::{bytes, readers::printed_by};

/// Pixels of CSS in a point, the unit of PDF.
const POINTS_PER_PIXEL: f64 = 0.75;

/// Pixels from the edge of a box to its label. A label that is that much longer than its box does not touch the next one.
const LABEL_INDENT: f64 = 3.0;

/// A box of the flame graph, in pixels.
struct Frame {
    name: String,
    label: String,
    x: f64,
    y: f64,
    width: f64,
    colour: [u8; 3],
}

/// A word of a page, in pixels.
struct Word {
    text: String,
    left: f64,
    right: f64,
}

#[test]
fn a_flame_graph_becomes_one_page_with_every_frame_and_readable_labels() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("Shop!Shop.Cart.{}", "VeryLongName".repeat(20));
    let profile = folded(&[
        ("app;main;read_number;parse_digits", 58),
        (&format!("app;main;{long}"), 30),
        ("app;main;write_output;flush_the_buffer", 11),
        ("app;main;write_output;narrow", 1),
    ]);
    let svg = folder.path().join("flame.svg");
    fs::write(&svg, bytes(&profile, Format::Svg)).unwrap();
    let picture = fs::read_to_string(&svg).unwrap();
    let frames = frames(&picture);
    assert_eq!(frames.len(), 9, "with the box of all samples");
    let pdf = convert(&svg, "pdf");
    assert!(printed_by(Command::new("pdfinfo").arg(&pdf)).contains("\nPages:           1\n"));
    let words = words(&pdf);
    for frame in &frames {
        // A narrow box has no label.
        let Some(word) = words.iter().find(|word| !frame.label.is_empty() && word.text == frame.label) else {
            assert!(frame.label.is_empty(), "{} has its label {} on the page", frame.name, frame.label);
            continue;
        };
        let is_inside = word.left >= frame.x && word.right <= frame.x + frame.width + LABEL_INDENT;
        assert!(is_inside, "{}: {} to {} in {}", word.text, word.left, word.right, frame.width);
    }
    let labels: Vec<_> = frames.iter().map(|frame| &*frame.label).collect();
    for label in ["read_number", "parse_digits", "write_output", "main", "app"] {
        assert!(labels.contains(&label), "{labels:?}");
    }
    assert!(labels.iter().any(|label| label.starts_with("VeryLongName") && label.ends_with("..")));
    assert_has_every_box(&pdf, &frames);
}

#[test]
fn a_flame_graph_becomes_a_png_of_its_size_with_its_colours() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("flame.svg");
    fs::write(&svg, bytes(&folded(&[("app;main", 1)]), Format::Svg)).unwrap();
    let picture = fs::read_to_string(&svg).unwrap();
    let png = convert(&svg, "png");
    let content = fs::read(&png).unwrap();
    // PNG specification, 5.2 and 11.2.2: the signature, then the IHDR chunk with width and height.
    assert_eq!(content[..8], *b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| f64::from(u32::from_be_bytes(content[at..at + 4].try_into().unwrap()));
    assert_eq!((number(16), number(20)), (attribute(&picture, "width"), attribute(&picture, "height")));
    // Drawn on a page of a pixel for each of its own, so that the colours are read as those of the PDF.
    let page = folder.path().join("page.svg");
    let (width, height) = (attribute(&picture, "width"), attribute(&picture, "height"));
    let image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\
         <image href=\"flame.png\" width=\"{width}\" height=\"{height}\"/></svg>"
    );
    fs::write(&page, image).unwrap();
    assert_has_every_box(&convert(&page, "pdf"), &frames(&picture));
}

/// The file that `rsvg-convert` makes of a picture.
fn convert(svg: &Path, format: &str) -> PathBuf {
    let to = svg.with_extension(format);
    printed_by(Command::new("rsvg-convert").args(["--format", format, "--output"]).arg(&to).arg(svg));
    to
}

fn frames(picture: &str) -> Vec<Frame> {
    let boxes = picture.split("<svg id=\"frames\"").nth(1).unwrap();
    let (x, width) = (attribute(boxes, "x"), attribute(boxes, "width"));
    boxes
        .split("<g><title>")
        .skip(1)
        .map(|frame| {
            let percent = |name| attribute(frame, name) / 100.0 * width;
            let colour = between(frame, "fill=\"rgb(", ")").split(',').map(|part| part.parse().unwrap());
            Frame {
                name: frame.split_once(" (").unwrap().0.to_owned(),
                label: between(&frame[frame.find("<text").unwrap()..], ">", "<").to_owned(),
                x: x + percent("x"),
                y: attribute(frame, "y"),
                width: percent("width"),
                colour: colour.collect::<Vec<u8>>().try_into().unwrap(),
            }
        })
        .collect()
}

/// The words of a page, in the order of the text.
fn words(pdf: &Path) -> Vec<Word> {
    let page = printed_by(Command::new("pdftotext").arg("-bbox").arg(pdf).arg("-"));
    let lines = page.lines().filter(|line| line.contains("<word "));
    let pixels = |line, name| attribute(line, name) / POINTS_PER_PIXEL;
    lines
        .map(|line| Word {
            text: between(&line[line.find("<word").unwrap()..], ">", "<").to_owned(),
            left: pixels(line, "xMin"),
            right: pixels(line, "xMax"),
        })
        .collect()
}

/// Draws the page with a pixel of the picture for each pixel, and compares the colour in each box.
fn assert_has_every_box(pdf: &Path, frames: &[Frame]) {
    const PIXELS_PER_INCH: &str = "96";
    let root = pdf.with_extension("");
    printed_by(Command::new("pdftoppm").args(["-singlefile", "-r", PIXELS_PER_INCH]).arg(pdf).arg(&root));
    let page = fs::read(root.with_extension("ppm")).unwrap();
    // ppm(5): `P6`, width and height, the largest value, then three bytes a pixel.
    let mut header = page.splitn(4, |byte| *byte == b'\n');
    let lines: Vec<_> = header.by_ref().take(3).map(|line| String::from_utf8_lossy(line)).collect();
    assert_eq!((&*lines[0], &*lines[2]), ("P6", "255"));
    let width: usize = lines[1].split(' ').next().unwrap().parse().unwrap();
    let pixels = header.next().unwrap();
    for frame in frames {
        // Below the top edge, left of the label.
        let (x, y) = ((frame.x + 1.5) as usize, (frame.y + 2.5) as usize);
        let at = (y * width + x) * 3;
        let is_near = pixels[at..at + 3].iter().zip(frame.colour).all(|(is, drawn)| is.abs_diff(drawn) <= 2);
        assert!(is_near, "{} at {x}, {y}: {:?} for {:?}", frame.name, &pixels[at..at + 3], frame.colour);
    }
}

/// The number of the first attribute of this name: `x="12.5%"`.
fn attribute(text: &str, name: &str) -> f64 {
    between(text, &format!(" {name}=\""), "\"").trim_end_matches('%').parse().unwrap()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).and_then(|(_, rest)| rest.split_once(end)).unwrap().0
}
