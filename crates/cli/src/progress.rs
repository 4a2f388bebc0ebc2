//! Progress lines on standard error: samples while sampling, downloads of debug files at the end.

use std::{
    io::{IsTerminal, stderr},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use profiler::{Downloads, Ended, Result, Session};
use profiler_profile::Profile;
use profiler_profile_formats::printable;
use profiler_symbolize::symbol_server::Download;

use super::standard_streams::print_message;

/// Interval at which the progress line is redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Waits for the end of sampling, with a progress line if standard error is a terminal.
pub(super) fn wait(session: &mut Session, limit: Option<Duration>, quiet: bool) -> Ended {
    if quiet || !stderr().is_terminal() {
        return session.wait(limit);
    }
    let bar = bar(limit);
    let ended = loop {
        let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
        let step = left.map_or(REDRAW_INTERVAL, |left| left.min(REDRAW_INTERVAL));
        match session.wait(Some(step)) {
            Ended::Elapsed if left.is_none_or(|left| left > REDRAW_INTERVAL) => {}
            ended => break ended,
        }
        bar.set_position(u64::try_from(session.elapsed().as_millis()).unwrap_or(u64::MAX));
        bar.set_message(message(session, limit));
    };
    bar.finish_and_clear();
    ended
}

/// Stops the session, with a progress line while it waits for downloads of debug files.
pub(super) fn stop(session: Session, quiet: bool) -> Result<Profile> {
    let downloads = session.downloads().filter(|_| !quiet);
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        if let Some(downloads) = downloads {
            scope.spawn(move || show_downloads(&downloads, &is_done));
        }
        let profile = session.stop();
        drop(done);
        profile
    })
}

/// Shows downloads until the sender is dropped: on a terminal in one line that changes, else in a line for each file.
fn show_downloads(downloads: &Downloads, is_done: &Receiver<()>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut last_file = None;
    while is_done.recv_timeout(REDRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let Some(download) = downloads.current() else { continue };
        if stderr().is_terminal() {
            bar.set_message(download_message(&download));
            bar.tick();
        } else if last_file.as_ref() != Some(&download.file_name) {
            print_message(&download_message(&download));
            last_file = Some(download.file_name);
        }
    }
    bar.finish_and_clear();
}

fn download_message(download: &Download) -> String {
    const BYTES_PER_MB: f64 = 1e6;
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / BYTES_PER_MB);
    let received = megabytes(download.received_bytes);
    let total = download.total_bytes.map(|bytes| format!(" of {}", megabytes(bytes))).unwrap_or_default();
    format!("downloading symbols of {}, {received}{total} MB", printable(&download.file_name))
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
