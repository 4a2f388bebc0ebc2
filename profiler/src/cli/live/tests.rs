//! Keys in, frames out: the live view without a terminal.

use std::time::Duration;

use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use super::{
    areas::Layout,
    draw::draw,
    history::{History, Span},
    palette::Palette,
    state::{Action, Pane, State},
};
use profiler_profile::{
    Profile,
    test_profile::{folded, random},
};
use profiler_profile_formats::{Format, OutputOptions};

const STACKS: [(&str, u64); 3] =
    [("app;main;work", 60), ("app;main;work;read", 20), ("app;main;Lib!A.Idle(int)", 20)];

fn state() -> State {
    State::new(History::new(Duration::from_secs(30)), OutputOptions::default(), Box::new(|profile| profile))
}

/// A state that has taken in one profile.
fn state_of(profile: Profile) -> State {
    let mut state = state();
    state.resize(80, 24);
    state.take_in(profile);
    state
}

fn known() -> State {
    state_of(folded(&STACKS))
}

fn press(state: &mut State, code: KeyCode) -> Option<Action> {
    state.key(code.into())
}

fn type_text(state: &mut State, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(state, KeyCode::Char(c)), None));
}

fn frame_of(state: &mut State, palette: Palette, columns: u16, rows: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let drawn = terminal.draw(|frame| {
        state.resize(columns, rows);
        draw(state, palette, frame.buffer_mut());
    });
    drawn.unwrap().buffer.clone()
}

/// The lines of a frame of 80 columns and 24 rows.
fn lines(state: &mut State) -> Vec<String> {
    let buffer = frame_of(state, Palette::Plain, 80, 24);
    let row = |row| (0..80).map(move |column| (column, row));
    (0..24).map(|y| row(y).map(|at| buffer[at].symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn text(state: &mut State) -> String {
    lines(state).join("\n")
}

#[test]
fn a_frame_has_the_graph_above_the_list_and_says_what_was_measured() {
    let lines = lines(&mut known());
    assert!(lines[1].starts_with("last 0 s, 100 samples, 0 lost, 0 Hz, the profiler takes"), "{lines:#?}");
    assert_eq!(lines[2], "|all");
    assert_eq!(lines[3], "|app");
    assert_eq!(lines[4], "|main");
    assert_eq!(lines[5], "|Lib!A.Idle(int)|work");
    assert_eq!(lines[6], "                |read");
    assert!(lines[16].contains("*self") && lines[16].contains("hot functions"), "{lines:#?}");
    assert_eq!(lines[17], "  60.0 %   80.0 %    native       work");
    assert_eq!(lines[18], "  20.0 %   20.0 %    native       Lib!A.Idle(int)");
    assert!(lines[22].ends_with("all"), "{lines:#?}");
    assert!(lines[23].starts_with("q leave"), "{lines:#?}");
}

#[test]
fn keys_select_zoom_in_and_come_back() {
    let mut state = known();
    for code in [KeyCode::Down, KeyCode::Down, KeyCode::Down] {
        press(&mut state, code);
    }
    assert_eq!(lines(&mut state)[22], "80.0 % total, 60.0 % self, 80 samples  work");
    press(&mut state, KeyCode::Enter);
    let zoomed = lines(&mut state);
    assert_eq!((zoomed[2].as_str(), zoomed[3].as_str()), ("|work", "|read"));
    assert!(zoomed[22].ends_with("zoomed: work"));
    press(&mut state, KeyCode::Backspace);
    assert_eq!(lines(&mut state)[2], "|main");
    press(&mut state, KeyCode::Esc);
    assert_eq!(lines(&mut state)[2], "|all");
}

#[test]
fn a_search_is_seen_while_it_is_typed_and_says_its_share() {
    let mut state = known();
    type_text(&mut state, "/rea");
    assert!(text(&mut state).contains("search: rea"));
    assert!(text(&mut state).contains("/rea 20.0 %"));
    press(&mut state, KeyCode::Enter);
    assert!(lines(&mut state)[22].ends_with("read"));
    press(&mut state, KeyCode::Esc);
    assert!(!text(&mut state).contains("/rea"));
    type_text(&mut state, "/(");
    assert!(text(&mut state).contains("is no regular expression"));
    press(&mut state, KeyCode::Esc);
    type_text(&mut state, "n");
    assert!(text(&mut state).contains("nothing is searched for"));
    type_text(&mut state, "/nowhere");
    press(&mut state, KeyCode::Enter);
    assert!(text(&mut state).contains("nothing matches"));
}

#[test]
fn boxes_that_do_not_match_are_faded() {
    let mut state = known();
    type_text(&mut state, "/work");
    let buffer = frame_of(&mut state, Palette::Full, 80, 24);
    let background = |row| buffer[(79, row)].bg;
    assert_ne!(background(5), background(6));
    let mut plain = known();
    let unsearched = frame_of(&mut plain, Palette::Full, 80, 24);
    assert_eq!(background(5), unsearched[(79, 5)].bg);
    assert_ne!(buffer[(20, 6)].bg, unsearched[(20, 6)].bg);
}

#[test]
fn a_function_of_the_list_is_found_in_the_graph() {
    let mut state = known();
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.pane, Pane::List);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Enter);
    assert!(text(&mut state).contains("/Lib!A.Idle(int) 20.0 %"), "{}", text(&mut state));
    press(&mut state, KeyCode::Tab);
    assert!(lines(&mut state)[22].ends_with("Lib!A.Idle(int)"));
}

#[test]
fn a_paused_view_stays_and_goes_on_with_all_there_is() {
    let mut state = known();
    type_text(&mut state, " ");
    state.take_in(folded(&[("app;main;new", 300)]));
    assert!(!text(&mut state).contains("new") && text(&mut state).contains("paused"));
    type_text(&mut state, "p");
    assert!(text(&mut state).contains("new") && !text(&mut state).contains("paused"));
    assert_eq!(state.shown.sample_count(), 400);
}

#[test]
fn the_window_and_everything_take_turns() {
    let mut state = known();
    type_text(&mut state, "w");
    assert_eq!(state.span, Span::All);
    assert!(text(&mut state).contains("all 0 s, 100 samples"));
    type_text(&mut state, "c");
    assert!(text(&mut state).contains("waiting for") && text(&mut state).contains("is forgotten"));
}

#[test]
fn a_file_s_name_says_its_format_and_a_wrong_one_can_be_mended() {
    let mut state = known();
    type_text(&mut state, "sflame.pdf");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    assert!(lines(&mut state)[22].contains("no known format; known: .folded .txt .svg"));
    (0..3).for_each(|_| drop(press(&mut state, KeyCode::Backspace)));
    type_text(&mut state, "svg");
    let action = press(&mut state, KeyCode::Enter);
    assert_eq!(action, Some(Action::Save("flame.svg".into(), Format::Svg)));
    type_text(&mut state, "s");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    assert!(state.prompt.is_none());
}

#[test]
fn ctrl_c_leaves_whatever_is_on_the_screen_and_q_does_but_where_it_is_typed() {
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for keys in ["", "?", "/q", "sq", " "] {
        let mut state = known();
        type_text(&mut state, keys);
        assert_eq!(state.key(interrupt), Some(Action::Quit), "{keys}");
    }
    assert_eq!(press(&mut known(), KeyCode::Char('q')), Some(Action::Quit));
    let mut helping = known();
    type_text(&mut helping, "?");
    assert_eq!(press(&mut helping, KeyCode::Char('q')), Some(Action::Quit));
}

#[test]
fn the_help_lists_the_keys_and_any_key_closes_it() {
    let mut state = known();
    type_text(&mut state, "?");
    let help = text(&mut state);
    assert!(help.contains("search by regular expression") && help.contains("JIT"), "{help}");
    // `x` is no key of its own.
    for key in ["v", "x"] {
        type_text(&mut state, key);
        assert_eq!(state.layout, Layout::Both);
        assert!(!text(&mut state).contains("search by regular expression"), "{key}");
        type_text(&mut state, "?");
    }
}

#[test]
fn graph_and_list_can_have_the_terminal_alone() {
    let mut state = known();
    type_text(&mut state, "v");
    assert!(!text(&mut state).contains("hot functions"));
    press(&mut state, KeyCode::Tab);
    assert_eq!((state.layout, state.pane), (Layout::List, Pane::List));
    assert!(lines(&mut state)[2].contains("hot functions"));
    type_text(&mut state, "tv");
    assert!(text(&mut state).contains("*total"));
    assert_eq!(state.layout, Layout::Both);
}

#[test]
fn a_view_whose_target_has_ended_says_so_and_can_still_be_used() {
    let mut state = known();
    state.end("the target has ended".to_owned());
    type_text(&mut state, "/work");
    assert!(text(&mut state).contains("the target has ended"));
    press(&mut state, KeyCode::Enter);
    type_text(&mut state, "sx.folded");
    assert!(matches!(press(&mut state, KeyCode::Enter), Some(Action::Save(..))));
}

#[test]
fn the_place_stays_when_the_next_profile_comes() {
    let mut state = known();
    type_text(&mut state, "/read");
    press(&mut state, KeyCode::Enter);
    state.take_in(folded(&[("app;main;a", 500), ("app;main;work;read", 1)]));
    assert!(lines(&mut state)[22].ends_with("read"));
    assert!(lines(&mut state)[22].contains("21 samples"));
}

#[test]
fn a_small_terminal_says_so() {
    for (columns, rows) in [(30, 5), (80, 9), (1, 1)] {
        frame_of(&mut known(), Palette::Full, columns, rows);
    }
    let buffer = frame_of(&mut known(), Palette::Plain, 30, 5);
    let line: String = (0..30).map(|column| buffer[(column, 1)].symbol()).collect();
    assert_eq!(line.trim_end(), "30x5, not 40x10");
}

#[test]
fn a_view_without_samples_says_that_it_waits() {
    let mut state = state();
    assert!(text(&mut state).contains("waiting for the first samples"));
    for key in "hjklnNt0uvw".chars() {
        press(&mut state, KeyCode::Char(key));
        press(&mut state, KeyCode::Enter);
        press(&mut state, KeyCode::PageDown);
    }
}

/// Numbers that look random, to press keys by.
fn any_key(step: u64) -> KeyCode {
    const KEYS: [KeyCode; 14] = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Enter,
        KeyCode::Backspace,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Char('/'),
        KeyCode::F(5),
    ];
    let draw = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33;
    match KEYS.get(draw as usize % (2 * KEYS.len())) {
        Some(key) => *key,
        None => KeyCode::Char(char::from(b' ' + (draw / 64 % 95) as u8)),
    }
}

#[test]
fn no_key_no_size_and_no_profile_breaks_it_and_no_name_reaches_the_terminal_as_it_is() {
    const SIZES: [(u16, u16); 6] = [(80, 24), (40, 10), (1, 1), (200, 60), (41, 200), (300, 11)];
    for seed in 0..6 {
        let mut state = state();
        for step in 0..300_u64 {
            if step % 50 == 0 {
                state.take_in(random(seed * 31 + step));
            }
            let _ = press(&mut state, any_key(seed * 1_000 + step));
            if step % 10 == 0 {
                let (columns, rows) = SIZES[(step / 10) as usize % SIZES.len()];
                let buffer = frame_of(&mut state, Palette::Sixteen, columns, rows);
                let is_harmless = |c: char| !c.is_control() && c != '\u{202e}';
                assert!(buffer.content().iter().all(|cell| cell.symbol().chars().all(is_harmless)));
            }
        }
    }
}

#[test]
fn wide_and_hostile_names_stay_in_their_boxes() {
    let names = "app;\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57};\u{1f525}\u{1f525};a\u{1b}[2Jb\u{9b}\u{202e}c\u{200f}d";
    let mut state = state_of(folded(&[(names, 3), ("app;z", 5)]));
    for columns in 40..90 {
        let buffer = frame_of(&mut state, Palette::Plain, columns, 24);
        let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
        assert!(text.chars().all(|c| !c.is_control() && !"\u{202e}\u{200f}".contains(c)), "{text:?}");
        assert!(buffer.content().iter().any(|cell| cell.symbol() == "z"));
    }
}
