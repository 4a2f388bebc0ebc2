//! What each key does, and the list of it that is shown.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
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

/// The keys and what they do, for the help.
pub(super) const HELP: [(&str, &str); 16] = [
    ("arrows, h j k l", "go to the caller, the callee, the neighbours"),
    ("PgUp, PgDn", "go up or down by a page"),
    ("Enter", "zoom into the box; find the function of the list in the graph"),
    ("Backspace, u", "zoom out to the caller"),
    ("Home, 0", "zoom out to all; to the beginning of the list"),
    ("End", "to the deepest callee; to the end of the list"),
    ("/", "search by regular expression, in names and files"),
    ("n, N", "go to the next match, the one before"),
    ("Esc", "end the search, then the zoom"),
    ("Tab", "change between graph and list"),
    ("v", "both, the graph alone, the list alone"),
    ("t", "sort the list by self or by total"),
    ("Space, p", "pause, and go on"),
    ("w", "the last seconds, or everything"),
    ("c", "forget what was sampled so far"),
    ("s", "save what is shown, in the format of the file's extension"),
];

/// What a key asks for when nothing is being typed.
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

/// Ctrl-C: in a terminal that hands over every key it is no signal.
pub(super) fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_leaves_and_other_combinations_do_nothing() {
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(command(control('c')), Some(Command::Quit));
        assert_eq!(command(control('s')), None);
        assert_eq!(command(KeyCode::Char('c').into()), Some(Command::Clear));
        assert_eq!(command(KeyCode::Char('~').into()), None);
    }

    #[test]
    fn every_letter_of_the_help_does_something() {
        let keys = HELP.iter().flat_map(|(keys, _)| keys.split([',', ' ']));
        let letters: Vec<_> = keys.filter(|key| key.chars().count() == 1).collect();
        assert!(letters.len() > 10);
        for letter in letters.into_iter().flat_map(str::chars) {
            assert!(command(KeyCode::Char(letter).into()).is_some(), "{letter}");
        }
    }
}
