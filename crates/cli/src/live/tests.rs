//! Tests of the live view without a terminal: keys and profiles in, drawn cells out.

use std::time::Duration;

use profiler_profile::{
    Event, Header, Profile, ProfileBuilder, Sample, StackEnd, ThreadState,
    test_profile::{self, folded, random},
};
use profiler_profile_formats::{Format, OutputOptions};
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
    state::{Action, LiveState, Pane},
};

const STACKS: [(&str, u64); 3] =
    [("app;main;work", 60), ("app;main;work;read", 20), ("app;main;Lib!A.Idle(int)", 20)];

fn state() -> LiveState {
    LiveState::new(
        History::new(Duration::from_secs(30)),
        OutputOptions::default(),
        Box::new(|profile| profile),
    )
}

/// A state with one profile.
fn state_with(profile: Profile) -> LiveState {
    let mut state = state();
    state.resize(80, 24);
    state.add_profile(profile);
    state
}

fn state_with_stacks() -> LiveState {
    state_with(folded(&STACKS))
}

fn press(state: &mut LiveState, code: KeyCode) -> Option<Action> {
    state.handle_key(code.into())
}

fn type_text(state: &mut LiveState, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(state, KeyCode::Char(c)), None));
}

fn frame_of(state: &mut LiveState, palette: Palette, columns: u16, rows: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let drawn = terminal.draw(|frame| {
        state.resize(columns, rows);
        draw(state, palette, frame.buffer_mut());
    });
    drawn.unwrap().buffer.clone()
}

/// The lines of a frame of 80 columns and 24 rows.
fn lines(state: &mut LiveState) -> Vec<String> {
    let buffer = frame_of(state, Palette::Plain, 80, 24);
    let row = |row| (0..80).map(move |column| (column, row));
    (0..24).map(|y| row(y).map(|at| buffer[at].symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn text(state: &mut LiveState) -> String {
    lines(state).join("\n")
}

#[test]
fn a_frame_has_status_graph_list_and_details() {
    let lines = lines(&mut state_with_stacks());
    assert!(lines[1].starts_with("last 0 s, 100 samples, 0 lost, profiler:"), "{lines:#?}");
    assert_eq!(lines[2], "|all");
    assert_eq!(lines[3], "|app");
    assert_eq!(lines[4], "|main");
    assert_eq!(lines[5], "|Lib!A.Idle(int)|work");
    assert_eq!(lines[6], "                |read");
    assert!(lines[16].contains("*self") && lines[16].contains("hot functions"), "{lines:#?}");
    assert_eq!(lines[17], "  60.0 %   80.0 %    native       work");
    assert_eq!(lines[18], "  20.0 %   20.0 %    native       Lib!A.Idle(int)");
    assert!(lines[22].ends_with("all"), "{lines:#?}");
    assert!(lines[23].starts_with("q quit"), "{lines:#?}");
}

#[test]
fn keys_select_and_zoom() {
    let mut state = state_with_stacks();
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
fn a_search_is_updated_while_it_is_typed_and_has_its_share() {
    let mut state = state_with_stacks();
    type_text(&mut state, "/rea");
    assert!(text(&mut state).contains("search: rea"));
    assert!(text(&mut state).contains("/rea 20.0 %"));
    press(&mut state, KeyCode::Enter);
    assert!(lines(&mut state)[22].ends_with("read"));
    press(&mut state, KeyCode::Esc);
    assert!(!text(&mut state).contains("/rea"));
    type_text(&mut state, "/(");
    assert!(text(&mut state).contains("is not a valid regular expression"));
    press(&mut state, KeyCode::Esc);
    type_text(&mut state, "n");
    assert!(text(&mut state).contains("no search"));
    type_text(&mut state, "/nowhere");
    press(&mut state, KeyCode::Enter);
    assert!(text(&mut state).contains("no match"));
}

#[test]
fn boxes_that_do_not_match_are_faded() {
    let mut state = state_with_stacks();
    type_text(&mut state, "/work");
    let buffer = frame_of(&mut state, Palette::Full, 80, 24);
    let background = |row| buffer[(79, row)].bg;
    assert_ne!(background(5), background(6));
    let mut plain = state_with_stacks();
    let unsearched = frame_of(&mut plain, Palette::Full, 80, 24);
    assert_eq!(background(5), unsearched[(79, 5)].bg);
    assert_ne!(buffer[(20, 6)].bg, unsearched[(20, 6)].bg);
}

#[test]
fn a_function_of_the_list_is_found_in_the_graph() {
    let mut state = state_with_stacks();
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.pane, Pane::List);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Enter);
    assert!(text(&mut state).contains("/Lib!A.Idle(int) 20.0 %"), "{}", text(&mut state));
    press(&mut state, KeyCode::Tab);
    assert!(lines(&mut state)[22].ends_with("Lib!A.Idle(int)"));
}

#[test]
fn a_paused_view_does_not_change_and_resumes_with_all_samples() {
    let mut state = state_with_stacks();
    type_text(&mut state, " ");
    state.add_profile(folded(&[("app;main;new", 300)]));
    assert!(!text(&mut state).contains("new") && text(&mut state).contains("paused"));
    type_text(&mut state, "p");
    assert!(text(&mut state).contains("new") && !text(&mut state).contains("paused"));
    assert_eq!(state.shown.total_value(), 400);
}

#[test]
fn a_key_switches_between_the_window_and_all_samples() {
    let mut state = state_with_stacks();
    type_text(&mut state, "w");
    assert_eq!(state.span, Span::All);
    assert!(text(&mut state).contains("all 0 s, 100 samples"));
    type_text(&mut state, "c");
    assert!(text(&mut state).contains("waiting for") && text(&mut state).contains("are cleared"));
}

#[test]
fn the_extension_selects_the_format_and_an_unknown_one_can_be_corrected() {
    let mut state = state_with_stacks();
    type_text(&mut state, "sflame.pdf");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    assert!(lines(&mut state)[22].contains("unknown format; known: .folded .txt .svg"));
    (0..3).for_each(|_| drop(press(&mut state, KeyCode::Backspace)));
    type_text(&mut state, "svg");
    let action = press(&mut state, KeyCode::Enter);
    assert_eq!(action, Some(Action::Save("flame.svg".into(), Format::Svg)));
    type_text(&mut state, "s");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    assert!(state.prompt.is_none());
}

#[test]
fn ctrl_c_quits_everywhere_and_q_outside_of_prompts() {
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for keys in ["", "?", "/q", "sq", " "] {
        let mut state = state_with_stacks();
        type_text(&mut state, keys);
        assert_eq!(state.handle_key(interrupt), Some(Action::Quit), "{keys}");
    }
    assert_eq!(press(&mut state_with_stacks(), KeyCode::Char('q')), Some(Action::Quit));
    let mut with_help = state_with_stacks();
    type_text(&mut with_help, "?");
    assert_eq!(press(&mut with_help, KeyCode::Char('q')), Some(Action::Quit));
}

#[test]
fn the_help_lists_the_keys_and_any_key_closes_it() {
    let mut state = state_with_stacks();
    type_text(&mut state, "?");
    let help = text(&mut state);
    assert!(help.contains("search by regular expression") && help.contains("JIT"), "{help}");
    // `v` has an action outside of the help, `x` has none.
    for key in ["v", "x"] {
        type_text(&mut state, key);
        assert_eq!(state.layout, Layout::Both);
        assert!(!text(&mut state).contains("search by regular expression"), "{key}");
        type_text(&mut state, "?");
    }
}

#[test]
fn graph_and_list_can_fill_the_terminal() {
    let mut state = state_with_stacks();
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
fn after_the_end_of_the_target_the_view_can_still_be_used() {
    let mut state = state_with_stacks();
    state.end_sampling("the target has ended".to_owned());
    type_text(&mut state, "/work");
    assert!(text(&mut state).contains("the target has ended"));
    press(&mut state, KeyCode::Enter);
    type_text(&mut state, "sx.folded");
    assert!(matches!(press(&mut state, KeyCode::Enter), Some(Action::Save(..))));
}

#[test]
fn the_selection_stays_when_the_next_profile_arrives() {
    let mut state = state_with_stacks();
    type_text(&mut state, "/read");
    press(&mut state, KeyCode::Enter);
    state.add_profile(folded(&[("app;main;a", 500), ("app;main;work;read", 1)]));
    assert!(lines(&mut state)[22].ends_with("read"));
    assert!(lines(&mut state)[22].contains("21 samples"));
}

#[test]
fn a_small_terminal_shows_the_minimum() {
    for (columns, rows) in [(30, 5), (80, 9), (1, 1)] {
        frame_of(&mut state_with_stacks(), Palette::Full, columns, rows);
    }
    let buffer = frame_of(&mut state_with_stacks(), Palette::Plain, 30, 5);
    let line: String = (0..30).map(|column| buffer[(column, 1)].symbol()).collect();
    assert_eq!(line.trim_end(), "30x5, not 40x10");
}

#[test]
fn a_view_without_samples_shows_that_it_waits() {
    let mut state = state();
    assert!(text(&mut state).contains("waiting for the first samples"));
    for key in "hjklnNt0uvw".chars() {
        press(&mut state, KeyCode::Char(key));
        press(&mut state, KeyCode::Enter);
        press(&mut state, KeyCode::PageDown);
    }
}

/// A pseudo-random key.
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
fn random_keys_sizes_and_profiles_do_not_panic_or_draw_control_characters() {
    const SIZES: [(u16, u16); 6] = [(80, 24), (40, 10), (1, 1), (200, 60), (41, 200), (300, 11)];
    for seed in 0..6 {
        let mut state = state();
        for step in 0..300_u64 {
            if step % 50 == 0 {
                state.add_profile(random(seed * 31 + step));
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
    let mut state = state_with(folded(&[(names, 3), ("app;z", 5)]));
    for columns in 40..90 {
        let buffer = frame_of(&mut state, Palette::Plain, columns, 24);
        let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
        assert!(text.chars().all(|c| !c.is_control() && !"\u{202e}\u{200f}".contains(c)), "{text:?}");
        assert!(buffer.content().iter().any(|cell| cell.symbol() == "z"));
    }
}

#[test]
fn events_and_states_of_threads_are_switched() {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 99));
    let event = builder.event(Event::at_frequency("wall", 49));
    let process = builder.process(1, "app");
    let thread = builder.thread(process, 1, "app");
    let [work, wait] = ["work", "wait"].map(|name| {
        let frame = test_profile::function(&mut builder, name, 0);
        builder.stack(vec![frame], StackEnd::Root)
    });
    builder.sample(0, 0, thread, work, 4);
    for (stack, value, state) in [(work, 1, ThreadState::OnCpu), (wait, 3, ThreadState::Blocked)] {
        let state = Some(state);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
    }
    let mut state = state_with(builder.finish(Header::default()));
    assert_eq!((state.tree.samples(), &*lines(&mut state)[4]), (4, "|work"));
    press(&mut state, KeyCode::Char('e'));
    let shown = text(&mut state);
    assert!(shown.contains("25 % on CPU, 75 % blocked") && shown.contains("event wall"), "{shown}");
    press(&mut state, KeyCode::Char('x'));
    assert_eq!((state.tree.samples(), &*lines(&mut state)[4]), (1, "|work"));
    press(&mut state, KeyCode::Char('x'));
    assert_eq!((state.tree.samples(), &*lines(&mut state)[4]), (3, "|wait"));
    assert!(text(&mut state).contains("25 % on CPU, 75 % blocked"));
    press(&mut state, KeyCode::Char('x'));
    assert_eq!(state.tree.samples(), 4);
    press(&mut state, KeyCode::Char('e'));
    assert_eq!((state.tree.samples(), state.state_values.len()), (4, 0));
}

#[test]
fn findings_of_the_window_are_above_the_graph_and_shown_in_turns() {
    let profile = || {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let process = builder.process(7, "shop");
        let frames = ["pthread_mutex_lock", "update", "main"];
        let frames = frames.map(|name| test_profile::function(&mut builder, name, 1)).to_vec();
        let stack = builder.stack(frames, StackEnd::Root);
        for (tick, tid) in (0..490).flat_map(|tick| (7..12).map(move |tid| (tick, tid))) {
            let thread = builder.thread(process, tid, "shop");
            let (time_ns, state) = (tick * 1_000_000_000 / 49, Some(ThreadState::Blocked));
            builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value: 1 });
        }
        builder.finish(Header { duration_ns: 10_000_000_000, ..Header::default() })
    };
    let mut state = state_with(profile());
    let shown = lines(&mut state);
    assert!(shown[2].starts_with("finding: ") && shown[2].contains("update"), "{shown:#?}");
    assert_eq!(shown[3], "|all");
    press(&mut state, KeyCode::Char('f'));
    assert!(lines(&mut state)[2].starts_with("finding: "), "the only one");
    press(&mut state, KeyCode::Char('w'));
    assert_eq!(lines(&mut state)[2], "|all", "all samples have no times");
    press(&mut state, KeyCode::Char('f'));
    assert!(text(&mut state).contains("no finding in the window"));
}
