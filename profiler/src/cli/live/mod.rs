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

use std::{sync::mpsc::Receiver, time::Duration};

use anyhow::{Result, bail};

use self::{
    feed::News,
    history::{History, Span},
    save::save,
    state::{Action, State},
    terminal::Screen,
};
use super::{arguments::LiveArguments, held_log::HeldLog, signals, summary};
use crate::Session;

/// Shows the target until somebody leaves, and answers with the exit code.
pub(super) fn run(arguments: &LiveArguments, log: &HeldLog, quiet: bool) -> Result<u8> {
    terminal::check()?;
    if arguments.view.shape.has_times() {
        bail!("--from and --to are for what is over: the live view shows the last --window, or everything");
    }
    let Some(builder) = arguments.builder() else {
        bail!("nothing to sample: give -p PID, -t TID, -a, --cgroup, --container or -- COMMAND (see --help)");
    };
    // What a command writes would end up in the middle of the picture.
    let session = builder.silent_command(true).build()?.start()?;
    let shape = arguments.view.shape.clone();
    let mut state = State::new(
        History::new(arguments.window),
        arguments.stacks.options(),
        Box::new(move |profile| shape.apply(profile)),
    );

    log.hold();
    let looked = look(session, arguments.sampling.duration, &mut state);
    log.release();
    if !quiet {
        eprint!("{}", summary::text(&state.history.profile(Span::All)));
    }
    looked.map(|()| 0)
}

/// Looks at the session until somebody leaves, and ends it and the command that it started.
fn look(session: Session, limit: Option<Duration>, state: &mut State) -> Result<()> {
    let command = session.command_pid();
    let screen = Screen::open()?;
    let (news, sampling) = feed::begin(session, limit)?;
    let shown = show(screen, state, &news);
    // What the session still has to say must not wait for a listener.
    drop(news);
    sampling.end();
    if let Some(pid) = command {
        signals::end(pid);
    }
    shown
}

/// Draws what is new until somebody leaves. The terminal is given back at the end.
fn show(mut screen: Screen, state: &mut State, news: &Receiver<News>) -> Result<()> {
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
                Some(Action::Save(path, format)) => {
                    state.say(save(&state.shown, &state.options, &path, format));
                }
                None => {}
            }
        }
        screen.draw(state)?;
    }
    Ok(())
}
