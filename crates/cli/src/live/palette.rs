//! Colours of boxes: those of the HTML page, reduced to the colours of the terminal.

use profiler_profile::CodeKind;
use ratatui::style::{Color, Modifier, Style};

use super::function::Kind;

/// The colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    /// 24-bit colours.
    Full,
    /// The 256 colours of xterm.
    Indexed,
    /// The 16 colours that every terminal has.
    Sixteen,
    /// No colours, because the terminal has none or `NO_COLOR` is set: <https://no-color.org>.
    Plain,
}

/// The emphasis of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emphasis {
    None,
    /// The box does not match the search.
    Faded,
    /// The box is selected.
    Selected,
}

/// Number of shades of a kind, which distinguish neighbours.
pub(super) const SHADES: usize = 3;

type Shades<T> = [T; SHADES];

impl Palette {
    /// Detects the palette by the variables `NO_COLOR`, `COLORTERM` and `TERM`.
    pub(super) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, words: &[&str]| {
            variable(name).is_some_and(|value| words.iter().any(|word| value.contains(word)))
        };
        if variable("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            Self::Plain
        } else if is("COLORTERM", &["truecolor", "24bit"]) || is("TERM", &["-direct"]) {
            Self::Full
        } else if is("TERM", &["256color"]) {
            Self::Indexed
        } else if is("TERM", &["mono", "vt100", "vt220", "dumb"]) {
            Self::Plain
        } else {
            Self::Sixteen
        }
    }

    /// Whether shades distinguish neighbours; without shades, boxes need edges.
    pub(super) fn has_shades(self) -> bool {
        matches!(self, Self::Full | Self::Indexed)
    }

    /// The style of a box.
    pub(super) fn style(self, kind: Kind, shade: usize, emphasis: Emphasis) -> Style {
        match emphasis {
            Emphasis::None => self.plain(kind, shade),
            Emphasis::Faded => self.faded(shade),
            Emphasis::Selected => self.selected(),
        }
    }

    /// The style of secondary text.
    pub(super) fn faint(self) -> Style {
        match self {
            Self::Full | Self::Indexed => Style::new().fg(Color::Indexed(246)),
            Self::Sixteen => Style::new().fg(Color::Gray),
            Self::Plain => Style::new(),
        }
    }

    /// The style of notices.
    pub(super) fn notice(self) -> Style {
        match self {
            Self::Plain => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
            _ => Style::new().bg(Color::Yellow).fg(Color::Black),
        }
    }

    fn plain(self, kind: Kind, shade: usize) -> Style {
        let shade = shade % SHADES;
        match self {
            Self::Full => {
                let (red, green, blue) = full(kind)[shade];
                Style::new().bg(Color::Rgb(red, green, blue)).fg(Color::Rgb(0x10, 0x14, 0x1a))
            }
            Self::Indexed => Style::new().bg(Color::Indexed(indexed(kind)[shade])).fg(Color::Indexed(16)),
            Self::Sixteen => Style::new().bg(sixteen(kind)).fg(Color::Black),
            Self::Plain => Style::new(),
        }
    }

    fn faded(self, shade: usize) -> Style {
        const BACKGROUNDS: Shades<u8> = [237, 238, 239];
        match self {
            Self::Full | Self::Indexed => {
                Style::new().bg(Color::Indexed(BACKGROUNDS[shade % SHADES])).fg(Color::Indexed(246))
            }
            Self::Sixteen => Style::new().fg(Color::DarkGray),
            Self::Plain => Style::new().add_modifier(Modifier::DIM),
        }
    }

    fn selected(self) -> Style {
        let style = match self {
            Self::Full => Style::new().bg(Color::Rgb(0xc2, 0x18, 0x5b)).fg(Color::Rgb(0xff, 0xff, 0xff)),
            Self::Indexed => Style::new().bg(Color::Indexed(161)).fg(Color::Indexed(231)),
            Self::Sixteen => Style::new().bg(Color::Red).fg(Color::White),
            Self::Plain => Style::new().add_modifier(Modifier::REVERSED),
        };
        style.add_modifier(Modifier::BOLD)
    }
}

/// The colours of the HTML page and the SVG, lighter from shade to shade.
fn full(kind: Kind) -> Shades<(u8, u8, u8)> {
    match kind {
        Kind::Frame(CodeKind::Kernel) => [(0xee, 0xa8, 0x3a), (0xf0, 0xb2, 0x52), (0xf2, 0xbd, 0x69)],
        Kind::Frame(CodeKind::Native) => [(0x86, 0xc3, 0xea), (0x95, 0xca, 0xed), (0xa3, 0xd1, 0xef)],
        Kind::Frame(CodeKind::Precompiled) => [(0xea, 0xe0, 0x6f), (0xed, 0xe4, 0x80), (0xef, 0xe7, 0x92)],
        Kind::Frame(CodeKind::Jit) => [(0x56, 0xc4, 0x9f), (0x6a, 0xcb, 0xab), (0x7f, 0xd2, 0xb6)],
        Kind::Frame(CodeKind::Inlined) => [(0xdb, 0xa6, 0xc4), (0xdf, 0xb1, 0xcb), (0xe4, 0xbb, 0xd2)],
        Kind::Frame(CodeKind::Unsymbolized) => [(0xbc, 0xc3, 0xcb), (0xc4, 0xca, 0xd1), (0xcc, 0xd1, 0xd7)],
        Kind::Frame(CodeKind::Wait) => [(0xe0, 0x7b, 0x6f), (0xe4, 0x8a, 0x80), (0xe8, 0x99, 0x91)],
        Kind::Group => [(0xdf, 0xe4, 0xea), (0xe3, 0xe7, 0xec), (0xe7, 0xeb, 0xef)],
    }
}

/// The nearest colours of xterm.
fn indexed(kind: Kind) -> Shades<u8> {
    match kind {
        Kind::Frame(CodeKind::Kernel) => [214, 215, 221],
        Kind::Frame(CodeKind::Native) => [117, 153, 111],
        Kind::Frame(CodeKind::Precompiled) => [185, 186, 228],
        Kind::Frame(CodeKind::Jit) => [79, 115, 78],
        Kind::Frame(CodeKind::Inlined) => [182, 218, 176],
        Kind::Frame(CodeKind::Unsymbolized) => [250, 251, 252],
        Kind::Frame(CodeKind::Wait) => [173, 174, 210],
        Kind::Group => [254, 255, 253],
    }
}

fn sixteen(kind: Kind) -> Color {
    match kind {
        Kind::Frame(CodeKind::Kernel) => Color::Yellow,
        Kind::Frame(CodeKind::Native) => Color::LightCyan,
        Kind::Frame(CodeKind::Precompiled) => Color::LightYellow,
        Kind::Frame(CodeKind::Jit) => Color::Green,
        Kind::Frame(CodeKind::Inlined) => Color::LightMagenta,
        Kind::Frame(CodeKind::Unsymbolized) => Color::Gray,
        Kind::Frame(CodeKind::Wait) => Color::LightRed,
        Kind::Group => Color::White,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn palette(variables: &[(&str, &str)]) -> Palette {
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Palette::from_environment(|name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_palette_follows_the_environment() {
        let xterm = ("TERM", "xterm-256color");
        assert_eq!(palette(&[xterm]), Palette::Indexed);
        assert_eq!(palette(&[xterm, ("COLORTERM", "truecolor")]), Palette::Full);
        assert_eq!(palette(&[xterm, ("COLORTERM", "truecolor"), ("NO_COLOR", "1")]), Palette::Plain);
        assert_eq!(palette(&[xterm, ("NO_COLOR", "")]), Palette::Indexed);
        assert_eq!(palette(&[("TERM", "linux")]), Palette::Sixteen);
        assert_eq!(palette(&[("TERM", "vt100")]), Palette::Plain);
        assert_eq!(palette(&[]), Palette::Sixteen);
    }

    #[test]
    fn kinds_shades_and_emphasis_have_different_styles() {
        for palette in [Palette::Full, Palette::Indexed, Palette::Sixteen] {
            let shades = if palette.has_shades() { SHADES } else { 1 };
            let mut seen = HashSet::new();
            for kind in Kind::CODE_KINDS.into_iter().chain([Kind::Group]) {
                for shade in 0..shades {
                    assert!(seen.insert(palette.style(kind, shade, Emphasis::None)), "{kind:?} {shade}");
                }
            }
            assert!(seen.insert(palette.style(Kind::Frame(CodeKind::Jit), 0, Emphasis::Selected)));
            assert!(seen.insert(palette.style(Kind::Frame(CodeKind::Jit), 0, Emphasis::Faded)));
        }
    }

    #[test]
    fn the_plain_palette_has_no_colours() {
        for emphasis in [Emphasis::None, Emphasis::Faded, Emphasis::Selected] {
            let style = Palette::Plain.style(Kind::Frame(CodeKind::Kernel), 1, emphasis);
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert_eq!(Palette::Plain.notice().bg, None);
    }
}
