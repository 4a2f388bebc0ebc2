//! A line that is being typed.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// No file name or pattern that somebody types is longer.
const MAX_CHARS: usize = 4096;

/// What the line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Search,
    Save,
}

/// The line.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) purpose: Purpose,
    pub(super) text: String,
}

/// What a key made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// There may be another text.
    Changed,
    /// It is what was meant.
    Done,
    /// It is not wanted any more.
    Cancelled,
}

impl Prompt {
    pub(super) fn new(purpose: Purpose, text: &str) -> Self {
        Self { purpose, text: text.to_owned() }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Typed {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Typed::Done,
            KeyCode::Esc => return Typed::Cancelled,
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Char('u') if is_control => self.text.clear(),
            KeyCode::Char('w') if is_control => {
                let kept = self.text.trim_end().rfind([' ', '/']).map_or(0, |at| at + 1);
                self.text.truncate(kept);
            }
            KeyCode::Char(c) if !is_control && !c.is_control() && self.text.chars().count() < MAX_CHARS => {
                self.text.push(c);
            }
            _ => {}
        }
        Typed::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_typed_mended_and_taken_back() {
        let mut prompt = Prompt::new(Purpose::Save, "a/");
        for c in "b.svgx".chars() {
            assert_eq!(prompt.key(KeyCode::Char(c).into()), Typed::Changed);
        }
        prompt.key(KeyCode::Backspace.into());
        assert_eq!(prompt.text, "a/b.svg");
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        prompt.key(control('w'));
        assert_eq!(prompt.text, "a/");
        prompt.key(control('u'));
        prompt.key(control('x'));
        prompt.key(KeyCode::Backspace.into());
        assert_eq!(prompt.text, "");
        assert_eq!(prompt.key(KeyCode::Enter.into()), Typed::Done);
        assert_eq!(prompt.key(KeyCode::Esc.into()), Typed::Cancelled);
    }

    #[test]
    fn no_control_character_and_no_endless_line_is_taken() {
        let mut prompt = Prompt::new(Purpose::Search, "");
        prompt.key(KeyCode::Char('\u{1b}').into());
        assert_eq!(prompt.text, "");
        for _ in 0..2 * MAX_CHARS {
            prompt.key(KeyCode::Char('\u{e9}').into());
        }
        assert_eq!(prompt.text.chars().count(), MAX_CHARS);
    }
}
