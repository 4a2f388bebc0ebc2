//! Draws the status, the details of the selected function, and the bottom line with prompt, message or keys.

use profiler_profile::{ThreadState, sum};
use profiler_profile_formats::{printable, truncated};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};
use unicode_width::UnicodeWidthStr;

use super::{fitted_name, percent, write};
use crate::live::{
    function::Function,
    history::Span,
    palette::Palette,
    prompt::{Prompt, Purpose},
    state::{LiveState, Pane},
    tree::{Count, ROOT},
};

const NS_PER_S: f64 = 1e9;

/// The columns of the search pattern in the status.
const SEARCH_COLUMNS: usize = 30;

/// Draws the target and the state of sampling, in two lines.
pub(super) fn draw(state: &LiveState, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let [first, second] = [area.y, area.y + 1];
    let marks = marks(state);
    let mut right = area.right();
    for mark in marks.iter().rev() {
        let text = format!(" {mark} ");
        let columns = u16::try_from(text.width()).unwrap_or(u16::MAX).min(right - area.x);
        right -= columns;
        write(buffer, right, first, columns, &text, palette.notice());
        right = right.saturating_sub(1).max(area.x);
    }
    let target = printable(&state.shown.header().target).into_owned();
    let target = if target.is_empty() { "waiting for the first samples".to_owned() } else { target };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    write(buffer, area.x, first, right - area.x, &target, bold);
    if state.tree.samples() > 0 || state.shown.header().duration_ns > 0 {
        write(buffer, area.x, second, area.width, &sampling_line(state), Style::new());
    }
}

/// Draws the finding that is shown.
pub(super) fn draw_finding(state: &LiveState, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if let Some(finding) = state.finding().filter(|_| area.height > 0) {
        write(buffer, area.x, area.y, area.width, &finding, palette.notice());
    }
}

/// Notices that change how the graph is to be read: search, pause, end of sampling.
fn marks(state: &LiveState) -> Vec<String> {
    let mut marks = Vec::new();
    if let Some(search) = &state.search {
        let share = percent(search.samples, state.tree.samples());
        marks.push(format!("/{} {share:.1} %", truncated(&printable(&search.text), SEARCH_COLUMNS)));
    }
    if state.is_paused {
        marks.push("paused".to_owned());
    }
    marks.extend(state.ended.clone());
    marks
}

fn sampling_line(state: &LiveState) -> String {
    let (header, ledger) = (state.shown.header(), state.shown.first_ledger());
    let seconds = header.duration_ns as f64 / NS_PER_S;
    let time = match state.span {
        Span::Window => format!("last {seconds:.0} s"),
        Span::All => format!("all {seconds:.0} s"),
    };
    let mut parts =
        vec![time, format!("{} samples", ledger.reported), format!("{} lost", ledger.lost_total())];
    parts.extend(states(state));
    if !header.edits.is_empty() {
        parts.push(format!("{} shown: {}", state.shown.total_value(), header.edits.join(" ")));
    }
    parts.extend(state.shown.first_event().frequency_hz().map(|frequency_hz| format!("{frequency_hz} Hz")));
    parts.push(own_cost(state));
    printable(&parts.join(", ")).into_owned()
}

/// The share of each state: `93 % blocked`.
fn states(state: &LiveState) -> impl Iterator<Item = String> {
    let all = sum::of(state.state_values.values().copied());
    let share = move |(state, value): (&ThreadState, &u64)| format!("{:.0} % {state}", percent(*value, all));
    state.state_values.iter().map(share)
}

fn own_cost(state: &LiveState) -> String {
    const BYTES_PER_MB: f64 = 1e6;
    let memory = state.shown.ledger().cost.peak_memory_bytes as f64 / BYTES_PER_MB;
    match state.history.own_cpu_percent() {
        Some(cpu) => format!("profiler: {cpu:.1} % of a CPU and {memory:.0} MB"),
        None => format!("profiler: {memory:.0} MB"),
    }
}

/// Draws the selected function in one line, or the error of the prompt below.
pub(super) fn draw_details(state: &LiveState, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if let (Some(_), Some(message)) = (&state.prompt, &state.message) {
        write(buffer, area.x, area.y, area.width, message, palette.notice());
        return;
    }
    let (function, count, is_zoomed) = match state.pane {
        Pane::Graph => in_graph(state),
        Pane::List => in_list(state),
    };
    let all_samples = state.tree.samples();
    let numbers = format!(
        "{:.1} % total, {:.1} % self, {} samples  {}",
        percent(count.total, all_samples),
        percent(count.own, all_samples),
        count.total,
        if is_zoomed { "zoomed: " } else { "" }
    );
    let written = write(buffer, area.x, area.y, area.width, &numbers, palette.faint());
    let columns = area.width - written;
    let name = function.map(|function| fitted_name(function, columns)).unwrap_or_default();
    write(buffer, area.x + written, area.y, columns, &name, Style::new().add_modifier(Modifier::BOLD));
}

/// The selected function, its samples, and whether the graph is zoomed to it.
type Selected<'a> = (Option<&'a Function>, Count, bool);

fn in_graph(state: &LiveState) -> Selected<'_> {
    let selected = state.graph.selected(&state.tree);
    let is_zoomed = selected != ROOT && selected == state.graph.zoomed(&state.tree);
    (Some(state.tree.function(selected)), state.tree.node(selected).count, is_zoomed)
}

fn in_list(state: &LiveState) -> Selected<'_> {
    let functions = state.list.functions(&state.tree);
    let row = state.list.selected_row(&state.tree, &functions);
    match functions.get(row) {
        Some(number) => (state.tree.function_by_number(*number), state.tree.function_count(*number), false),
        None => (None, Count::default(), false),
    }
}

/// Draws the prompt, else the message, else the keys. Returns the position of the cursor in the prompt.
pub(super) fn draw_bottom(
    state: &LiveState,
    palette: Palette,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<(u16, u16)> {
    const KEYS: &str = "q quit  ? keys  / search  Enter zoom  Tab list  Space pause  w all  s save";
    let Some(prompt) = &state.prompt else {
        let (text, style) = match &state.message {
            Some(message) => (message.as_str(), palette.notice()),
            None => (KEYS, palette.faint()),
        };
        write(buffer, area.x, area.y, area.width, text, style);
        return None;
    };
    let text = prompt_line(prompt, area.width.saturating_sub(1).into());
    let column = area.x + write(buffer, area.x, area.y, area.width, &text, Style::new());
    Some((column.min(area.right() - 1), area.y))
}

/// The prompt with the end of its text.
fn prompt_line(prompt: &Prompt, columns: usize) -> String {
    let label = match prompt.purpose {
        Purpose::Search => "search: ",
        Purpose::Save => "save as (.svg, .html, .folded, .profile ...): ",
    };
    let text = printable(&prompt.text);
    let mut shown: &str = &text;
    while label.len() + shown.width() > columns {
        let mut rest = shown.chars();
        if rest.next().is_none() {
            break;
        }
        shown = rest.as_str();
    }
    format!("{label}{shown}")
}
