//! The prompt: a line of text that is being typed.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Limit of the text.
const MAX_CHARS: usize = 4096;

/// The purpose of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Search,
    Save,
}

/// An open prompt.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) purpose: Purpose,
    pub(super) text: String,
}

/// The effect of a key on the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// The text may have changed.
    Changed,
    /// The text is complete.
    Done,
    /// The prompt is cancelled.
    Cancelled,
}

impl Prompt {
    pub(super) fn new(purpose: Purpose, text: &str) -> Self {
        Self { purpose, text: text.to_owned() }
    }

    /// Edits the text.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Typed {
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
    fn text_can_be_typed_edited_and_cancelled() {
        let mut prompt = Prompt::new(Purpose::Save, "a/");
        for c in "b.svgx".chars() {
            assert_eq!(prompt.handle_key(KeyCode::Char(c).into()), Typed::Changed);
        }
        prompt.handle_key(KeyCode::Backspace.into());
        assert_eq!(prompt.text, "a/b.svg");
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        prompt.handle_key(control('w'));
        assert_eq!(prompt.text, "a/");
        prompt.handle_key(control('u'));
        prompt.handle_key(control('x'));
        prompt.handle_key(KeyCode::Backspace.into());
        assert_eq!(prompt.text, "");
        assert_eq!(prompt.handle_key(KeyCode::Enter.into()), Typed::Done);
        assert_eq!(prompt.handle_key(KeyCode::Esc.into()), Typed::Cancelled);
    }

    #[test]
    fn control_characters_and_too_long_texts_are_refused() {
        let mut prompt = Prompt::new(Purpose::Search, "");
        prompt.handle_key(KeyCode::Char('\u{1b}').into());
        assert_eq!(prompt.text, "");
        for _ in 0..2 * MAX_CHARS {
            prompt.handle_key(KeyCode::Char('\u{e9}').into());
        }
        assert_eq!(prompt.text.chars().count(), MAX_CHARS);
    }
}
