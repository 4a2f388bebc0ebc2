//! Sets up the terminal for the live view, and restores it at every exit, also after a panic.

use std::{
    io::{IsTerminal, Stdout, stdout},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use super::{draw::draw, palette::Palette, state::LiveState};

/// Whether the terminal is in raw mode with the alternate screen.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode with the alternate screen. Dropping restores it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

/// Fails if standard output is not a terminal that supports the live view.
pub(super) fn check() -> Result<()> {
    if !stdout().is_terminal() {
        bail!(
            "the live view needs a terminal as standard output: to write to a file use `profiler ... -o FILE`"
        );
    }
    if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        bail!(
            "the live view needs a terminal that can move its cursor, and TERM is dumb: use `profiler ... -o FILE`"
        );
    }
    Ok(())
}

impl Screen {
    /// Sets up the terminal.
    pub(super) fn open() -> Result<Self> {
        restore_on_panic();
        IS_OPEN.store(true, Ordering::SeqCst);
        let open = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(stdout()))
        };
        let terminal = open().inspect_err(|_| restore()).context("failed to set up the terminal")?;
        let palette = Palette::from_environment(|name| std::env::var(name).ok());
        Ok(Self { terminal, palette })
    }

    /// Draws the state in the current size of the terminal.
    pub(super) fn draw(&mut self, state: &mut LiveState) -> Result<()> {
        let palette = self.palette;
        let drawn = self.terminal.draw(|frame| {
            state.resize(frame.area().width, frame.area().height);
            if let Some(cursor) = draw(state, palette, frame.buffer_mut()) {
                frame.set_cursor_position(cursor);
            }
        });
        drawn.map(drop).context("failed to draw on the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal if it is set up.
pub(super) fn restore() {
    if IS_OPEN.swap(false, Ordering::SeqCst) {
        // A terminal that was closed needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal before a panic message is printed.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
}
