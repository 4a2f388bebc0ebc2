//! `profiler live`: a flame graph and the hot functions in the terminal, updated every second.
//!
//! `events` receives profiles, keys and signals; `state` handles them; `draw` draws the state into a buffer; only
//! `terminal` accesses the terminal.

mod areas;
mod box_layout;
mod draw;
mod events;
mod function;
mod graph_view;
mod history;
mod hot_list;
mod keys;
mod palette;
mod prompt;
mod save;
mod search;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod tree;

use std::{borrow::Cow, sync::mpsc::Receiver, time::Duration};

use anyhow::{Result, bail};
use profiler::{Session, sandbox};

use self::{
    events::Event,
    history::{History, Span},
    save::save,
    state::{Action, LiveState},
    terminal::Screen,
};
use super::{
    arguments::{CommonArguments, LiveArguments, NO_TARGET},
    held_log::HeldLog,
    signals,
    standard_streams::print_messages,
    summary::{self, Contents},
    wrong_arguments::{self, WrongArguments},
};

/// Runs the live view until the user quits, and returns the exit code.
pub(super) fn run(arguments: &LiveArguments, log: &HeldLog, common: &CommonArguments) -> Result<u8> {
    terminal::check()?;
    if arguments.view.shape.has_times() {
        bail!(WrongArguments::new(
            "--from and --to do not apply to the live view: it shows the last --window or all samples"
        ));
    }
    let Some(builder) = arguments.builder() else {
        bail!(WrongArguments::new(NO_TARGET));
    };
    let builder = arguments.apply_user(builder, common.quiet)?;
    // The output of a command would overwrite the screen.
    let builder = builder.silent_command(true).sandbox(!common.no_sandbox);
    let session = wrong_arguments::build(builder)?.start()?;
    let shape = arguments.view.shape.clone();
    let mut state = LiveState::new(
        History::new(arguments.window),
        arguments.stacks.options(),
        Box::new(move |profile| match shape.view(&profile) {
            Cow::Owned(view) => view,
            Cow::Borrowed(_) => profile,
        }),
    );

    log.hold();
    let result = run_session(session, arguments.sampling.duration, &mut state);
    log.release();
    if !common.quiet {
        let profile = state.history.profile(Span::All);
        let contents = Contents { is_verbose: common.verbose > 0, has_findings: true };
        print_messages(&summary::text(&profile, &profile, contents));
    }
    result.map(|()| 0)
}

/// Shows the session until the user quits, then stops it and terminates its command.
fn run_session(session: Session, limit: Option<Duration>, state: &mut LiveState) -> Result<()> {
    let command = session.command_pid();
    let screen = Screen::open()?;
    let (events, sampling) = events::start(session, limit)?;
    let result = handle_events(screen, state, &events);
    // A full queue would block the thread of the session.
    drop(events);
    sampling.stop();
    if let Some(pid) = command {
        signals::terminate(pid);
    }
    result
}

/// Handles events and redraws until the user quits. The terminal is restored at the end.
fn handle_events(mut screen: Screen, state: &mut LiveState, events: &Receiver<Event>) -> Result<()> {
    screen.draw(state)?;
    while let Ok(first) = events.recv() {
        // Keys that are held down repeat faster than the screen is redrawn.
        for event in std::iter::once(first).chain(events.try_iter()) {
            let action = match event {
                Event::Key(key) => state.handle_key(key),
                Event::Resized => None,
                Event::Interval(profile) => {
                    state.add_profile(*profile);
                    None
                }
                Event::Ended(reason) => {
                    state.end_sampling(reason);
                    None
                }
                Event::Failed(error) => return Err(error.into()),
                Event::Quit => return Ok(()),
            };
            match action {
                Some(Action::Quit) => return Ok(()),
                Some(Action::Save(path, format)) => {
                    sandbox::restore_file_rights()?;
                    state.show_message(save(&state.shown, &state.options, &path, format));
                }
                None => {}
            }
        }
        screen.draw(state)?;
    }
    Ok(())
}
