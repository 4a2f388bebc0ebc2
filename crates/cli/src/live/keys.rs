//! Key bindings of the live view, and their help texts.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Quit,
    Help,
    Pause,
    Span,
    Clear,
    Search,
    NextMatch,
    PreviousMatch,
    Save,
    Pane,
    Layout,
    Sort,
    Finding,
    Event,
    LiveState,
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Escape,
}

/// The keys and their descriptions.
pub(super) const HELP: [(&str, &str); 19] = [
    ("arrows, h j k l", "select the caller, the callee, the neighbours"),
    ("PgUp, PgDn", "move up or down by a page"),
    ("Enter", "zoom in; in the list: find the function in the graph"),
    ("Backspace, u", "zoom out to the caller"),
    ("Home, 0", "zoom out completely; first function of the list"),
    ("End", "deepest callee; last function of the list"),
    ("/", "search by regular expression, in functions and modules"),
    ("n, N", "next match, previous match"),
    ("Esc", "end the search, then the zoom"),
    ("Tab", "switch between graph and list"),
    ("v", "show both, only the graph, only the list"),
    ("t", "sort the list by self or by total"),
    ("f", "show the next finding"),
    ("e", "show the next event"),
    ("x", "show the next state of threads, or all"),
    ("Space, p", "pause, resume"),
    ("w", "show the window or all samples"),
    ("c", "clear all samples"),
    ("s", "save the shown profile, in the format of the file's extension"),
];

/// The action of a key while no prompt is open.
pub(super) fn command(key: KeyEvent) -> Option<Command> {
    if is_interrupt(key) {
        return Some(Command::Quit);
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('q') => Command::Quit,
        KeyCode::Char('?') | KeyCode::F(1) => Command::Help,
        KeyCode::Char(' ' | 'p') => Command::Pause,
        KeyCode::Char('w') => Command::Span,
        KeyCode::Char('c') => Command::Clear,
        KeyCode::Char('/') => Command::Search,
        KeyCode::Char('n') => Command::NextMatch,
        KeyCode::Char('N') => Command::PreviousMatch,
        KeyCode::Char('s') => Command::Save,
        KeyCode::Tab | KeyCode::BackTab => Command::Pane,
        KeyCode::Char('v') => Command::Layout,
        KeyCode::Char('t') => Command::Sort,
        KeyCode::Char('f') => Command::Finding,
        KeyCode::Char('e') => Command::Event,
        KeyCode::Char('x') => Command::LiveState,
        KeyCode::Left | KeyCode::Char('h') => Command::Left,
        KeyCode::Right | KeyCode::Char('l') => Command::Right,
        KeyCode::Up | KeyCode::Char('k') => Command::Up,
        KeyCode::Down | KeyCode::Char('j') => Command::Down,
        KeyCode::PageUp => Command::PageUp,
        KeyCode::PageDown => Command::PageDown,
        KeyCode::Home | KeyCode::Char('0') => Command::First,
        KeyCode::End => Command::Last,
        KeyCode::Enter => Command::Open,
        KeyCode::Backspace | KeyCode::Char('u') => Command::Back,
        KeyCode::Esc => Command::Escape,
        _ => return None,
    })
}

/// Whether the key is Ctrl-C, which sends no signal in raw mode.
pub(super) fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_quits_and_other_combinations_do_nothing() {
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(command(control('c')), Some(Command::Quit));
        assert_eq!(command(control('s')), None);
        assert_eq!(command(KeyCode::Char('c').into()), Some(Command::Clear));
        assert_eq!(command(KeyCode::Char('~').into()), None);
    }

    #[test]
    fn every_letter_of_the_help_has_an_action() {
        let keys = HELP.iter().flat_map(|(keys, _)| keys.split([',', ' ']));
        let letters: Vec<_> = keys.filter(|key| key.chars().count() == 1).collect();
        assert!(letters.len() > 10);
        for letter in letters.into_iter().flat_map(str::chars) {
            assert!(command(KeyCode::Char(letter).into()).is_some(), "{letter}");
        }
    }
}
