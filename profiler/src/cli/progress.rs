//! How far sampling is, on a terminal.

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Ended, Session};

/// How often the line is drawn anew.
const REDRAW: Duration = Duration::from_millis(250);

/// Waits for the end of the session, with a line on standard error that says how far it is, when somebody
/// looks.
pub(super) fn wait(session: &mut Session, limit: Option<Duration>, quiet: bool) -> Ended {
    if quiet || !stderr().is_terminal() {
        return session.wait(limit);
    }
    let bar = bar(limit);
    let ended = loop {
        let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
        let step = left.map_or(REDRAW, |left| left.min(REDRAW));
        match session.wait(Some(step)) {
            Ended::Elapsed if left.is_none_or(|left| left > REDRAW) => {}
            ended => break ended,
        }
        bar.set_position(u64::try_from(session.elapsed().as_millis()).unwrap_or(u64::MAX));
        bar.set_message(message(session, limit));
    };
    bar.finish_and_clear();
    ended
}

fn bar(limit: Option<Duration>) -> ProgressBar {
    let milliseconds = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let bar = ProgressBar::with_draw_target(milliseconds, ProgressDrawTarget::stderr());
    let template = if limit.is_some() { "sampling {wide_bar} {msg}" } else { "sampling {spinner} {msg}" };
    ProgressStyle::with_template(template).map_or(bar.clone(), |style| bar.with_style(style))
}

fn message(session: &Session, limit: Option<Duration>) -> String {
    let progress = session.progress();
    let time = match limit {
        Some(limit) => format!("{:.0} s left", limit.saturating_sub(session.elapsed()).as_secs_f64()),
        None => format!("{:.0} s, Ctrl-C to stop", session.elapsed().as_secs_f64()),
    };
    let lost = if progress.lost > 0 { format!(", {} lost", progress.lost) } else { String::new() };
    format!("{time}, {} samples{lost}", progress.samples)
}
