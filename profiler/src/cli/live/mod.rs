//! `profiler live`: a flame graph and the hot functions in the terminal, every second anew.
//!
//! `state` is all there is to decide, and knows no terminal; `draw` makes a picture of it; `feed` says what is new;
//! `terminal` is the only place that touches the terminal itself.

mod areas;
mod boxes;
mod draw;
mod feed;
mod function;
mod graph;
mod history;
mod hot_list;
mod keys;
mod palette;
mod prompt;
mod save;
mod search;
mod short_name;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::mpsc::Receiver;

use anyhow::{Result, bail};

use self::{
    feed::News,
    history::{History, Span},
    save::save,
    state::{Action, State},
    terminal::Screen,
};
use super::{arguments::LiveArguments, held_log::HeldLog, signals, summary};
use crate::OutputOptions;

/// Shows the target until somebody leaves, and answers with the exit code.
pub(super) fn run(arguments: &LiveArguments, log: &HeldLog, quiet: bool) -> Result<u8> {
    terminal::check()?;
    if arguments.view.shape.has_times() {
        bail!("--from and --to are for what is over: the live view shows the last --window, or everything");
    }
    let Some(builder) = arguments.builder() else {
        bail!("nothing to sample: give -p PID, -t TID, -a, --cgroup, --container or -- COMMAND (see --help)");
    };
    let session = builder.silent_command(true).build()?.start()?;
    let command = session.command_pid();
    let shape = arguments.view.shape.clone();
    let options = arguments.stacks.options();
    let history = History::new(arguments.window);
    let mut state = State::new(history, options, Box::new(move |profile| shape.apply(profile)));

    log.hold();
    let screen = Screen::open()?;
    let (news, sampling) = feed::begin(session, arguments.sampling.duration)?;
    let shown = show(screen, &mut state, &options, &news);
    log.release();
    // A session that sends into a full queue must not wait for ever.
    drop(news);
    sampling.end();
    if let Some(pid) = command {
        signals::end(pid);
    }
    if !quiet {
        eprint!("{}", summary::text(&state.history.profile(Span::All)));
    }
    shown.map(|()| 0)
}

/// Draws what is new until somebody leaves. The terminal is given back at the end.
fn show(mut screen: Screen, state: &mut State, options: &OutputOptions, news: &Receiver<News>) -> Result<()> {
    screen.draw(state)?;
    while let Ok(first) = news.recv() {
        // Keys that are held down come faster than pictures.
        for told in std::iter::once(first).chain(news.try_iter()) {
            let action = match told {
                News::Key(key) => state.key(key),
                News::Resized => None,
                News::Interval(profile) => {
                    state.take_in(*profile);
                    None
                }
                News::Ended(reason) => {
                    state.end(reason);
                    None
                }
                News::Failed(error) => return Err(error.into()),
                News::Leave => return Ok(()),
            };
            match action {
                Some(Action::Quit) => return Ok(()),
                Some(Action::Save(path, format)) => state.say(save(&state.shown, options, &path, format)),
                None => {}
            }
        }
        screen.draw(state)?;
    }
    Ok(())
}
