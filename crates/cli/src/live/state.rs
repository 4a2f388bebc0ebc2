//! State machine of the live view: handles keys and profiles, without access to the terminal.

use std::{borrow::Cow, collections::BTreeMap, path::PathBuf};

use profiler_profile::{EventId, Profile, Shape, ThreadState};
use profiler_profile_formats::{Format, OutputOptions, printable};
use ratatui::{crossterm::event::KeyEvent, layout::Rect};

use super::{
    areas::{Areas, Layout},
    graph_view::{GraphView, Step},
    history::{History, Span},
    hot_list::{HotList, Order},
    keys::{self, Command},
    prompt::{Prompt, Purpose, Typed},
    search::Search,
    tree::{ROOT, Tree},
};

/// Rows of a page step in a list or graph that is not shown.
const MIN_PAGE_ROWS: u16 = 1;

/// An action that the caller executes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Write the shown profile to this file.
    Save(PathBuf, Format),
}

/// The pane that has the focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Graph,
    List,
}

/// Applies the filters of the command line to a profile.
pub(super) type ShapeProfile = Box<dyn Fn(Profile) -> Profile>;

/// The state of the live view.
pub(super) struct LiveState {
    pub(super) history: History,
    shape: ShapeProfile,
    pub(super) options: OutputOptions,
    /// The profile of the shown time span, after the filters.
    pub(super) shown: Profile,
    pub(super) tree: Tree,
    /// The event that is shown, once there are samples.
    event: Option<EventId>,
    /// The findings of the window, as texts.
    findings: Vec<String>,
    /// The index of the finding that is shown.
    shown_finding: usize,
    /// The state whose samples are shown; `None` shows all.
    thread_state: Option<ThreadState>,
    /// The value of the shown event's samples in each state, all states included.
    pub(super) state_values: BTreeMap<ThreadState, u64>,
    pub(super) span: Span,
    pub(super) is_paused: bool,
    /// Why sampling has ended; `None` while it runs.
    pub(super) ended: Option<String>,
    pub(super) pane: Pane,
    pub(super) layout: Layout,
    pub(super) graph: GraphView,
    pub(super) list: HotList,
    pub(super) search: Option<Search>,
    pub(super) prompt: Option<Prompt>,
    /// The message of the last key.
    pub(super) message: Option<String>,
    pub(super) is_help_shown: bool,
    pub(super) terminal: Rect,
}

impl LiveState {
    pub(super) fn new(history: History, options: OutputOptions, shape: ShapeProfile) -> Self {
        let shown = Profile::default();
        Self {
            tree: Tree::from_profile(&shown, &options),
            history,
            shape,
            options,
            shown,
            event: None,
            findings: Vec::new(),
            shown_finding: 0,
            thread_state: None,
            state_values: BTreeMap::new(),
            span: Span::Window,
            is_paused: false,
            ended: None,
            pane: Pane::default(),
            layout: Layout::default(),
            graph: GraphView::default(),
            list: HotList::default(),
            search: None,
            prompt: None,
            message: None,
            is_help_shown: false,
            terminal: Rect::ZERO,
        }
    }

    /// Adds the profile of the next interval.
    pub(super) fn add_profile(&mut self, interval: Profile) {
        self.history.push(interval);
        if !self.is_paused {
            self.refresh();
        }
    }

    /// Records that sampling has ended.
    pub(super) fn end_sampling(&mut self, reason: String) {
        self.ended = Some(reason);
    }

    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.terminal = Rect::new(0, 0, columns, rows);
    }

    pub(super) fn areas(&self) -> Option<Areas> {
        Areas::new(self.terminal, self.layout, !self.findings.is_empty())
    }

    /// The finding that is shown, with its number where there are several.
    pub(super) fn finding(&self) -> Option<String> {
        let index = self.shown_finding.min(self.findings.len().checked_sub(1)?);
        let text = &self.findings[index];
        let count = self.findings.len();
        Some(if count > 1 {
            format!("finding {} of {count}: {text}", index + 1)
        } else {
            format!("finding: {text}")
        })
    }

    pub(super) fn show_message(&mut self, message: impl Into<String>) {
        self.message = Some(message.into());
    }

    /// Handles a key.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Option<Action> {
        self.message = None;
        if keys::is_interrupt(key) {
            return Some(Action::Quit);
        }
        if let Some(prompt) = self.prompt.take() {
            return self.handle_prompt_key(prompt, key);
        }
        let command = keys::command(key);
        if std::mem::take(&mut self.is_help_shown) && command != Some(Command::Quit) {
            return None;
        }
        match command? {
            Command::Quit => return Some(Action::Quit),
            Command::Help => self.is_help_shown = true,
            Command::Pause => {
                self.is_paused = !self.is_paused;
                self.refresh_unless_paused();
            }
            Command::Span => {
                self.span = if self.span == Span::All { Span::Window } else { Span::All };
                self.refresh();
            }
            Command::Clear => {
                self.history.clear();
                self.refresh();
                self.show_message("all samples are cleared");
            }
            Command::Search => self.prompt = Some(Prompt::new(Purpose::Search, "")),
            Command::Save => self.prompt = Some(Prompt::new(Purpose::Save, "")),
            Command::NextMatch => self.go_to_match(false),
            Command::PreviousMatch => self.go_to_match(true),
            Command::Layout => self.change_layout(),
            Command::Pane => self.change_pane(),
            Command::Sort => {
                self.list.order = if self.list.order == Order::Own { Order::Total } else { Order::Own };
            }
            Command::Finding => self.show_next_finding(),
            Command::Event => self.show_next_event(),
            Command::LiveState => self.show_next_state(),
            Command::Escape => {
                if self.search.take().is_none() {
                    self.graph.reset();
                }
            }
            other => match self.pane {
                Pane::Graph => self.move_in_graph(other),
                Pane::List => self.move_in_list(other),
            },
        }
        None
    }

    fn handle_prompt_key(&mut self, mut prompt: Prompt, key: KeyEvent) -> Option<Action> {
        let typed = prompt.handle_key(key);
        match (prompt.purpose, typed) {
            (Purpose::Save, Typed::Done) => return self.save(prompt),
            (Purpose::Search, Typed::Changed | Typed::Done) => {
                self.search_for(&prompt.text);
                if typed == Typed::Changed {
                    self.prompt = Some(prompt);
                } else if self.search.is_some() {
                    self.go_to_match(false);
                }
            }
            (Purpose::Search, Typed::Cancelled) => self.search = None,
            (Purpose::Save, Typed::Cancelled) => {}
            (Purpose::Save, Typed::Changed) => self.prompt = Some(prompt),
        }
        None
    }

    /// Searches for a pattern. The previous search stays while the pattern is invalid.
    fn search_for(&mut self, text: &str) {
        if text.is_empty() {
            self.search = None;
            return;
        }
        match Search::new(text, &self.tree) {
            Ok(search) => self.search = Some(search),
            Err(error) => self.show_message(printable(&error.to_string())),
        }
    }

    /// Requests to save the profile. The prompt stays open if the extension is unknown.
    fn save(&mut self, prompt: Prompt) -> Option<Action> {
        let path = PathBuf::from(prompt.text.trim());
        if path.as_os_str().is_empty() {
            return None;
        }
        match Format::from_path(&path) {
            Ok(format) => Some(Action::Save(path, format)),
            Err(_) => {
                let known = Format::ALL.iter().flat_map(|format| format.extensions());
                let known: Vec<_> = known.map(|extension| format!(".{extension}")).collect();
                self.show_message(format!("unknown format; known: {}", known.join(" ")));
                self.prompt = Some(prompt);
                None
            }
        }
    }

    fn go_to_match(&mut self, is_backwards: bool) {
        let Some(search) = &self.search else { return self.show_message("no search: press /") };
        match search.next(self.graph.selected(&self.tree), is_backwards) {
            Some(node) => self.graph.show(&self.tree, self.columns(), node),
            None => self.show_message("no match"),
        }
    }

    fn change_layout(&mut self) {
        (self.layout, self.pane) = match self.layout {
            Layout::Both => (Layout::Graph, Pane::Graph),
            Layout::Graph => (Layout::List, Pane::List),
            Layout::List => (Layout::Both, self.pane),
        };
    }

    fn change_pane(&mut self) {
        match self.layout {
            Layout::Both if self.pane == Pane::Graph => self.pane = Pane::List,
            Layout::Both => self.pane = Pane::Graph,
            Layout::Graph => (self.layout, self.pane) = (Layout::List, Pane::List),
            Layout::List => (self.layout, self.pane) = (Layout::Graph, Pane::Graph),
        }
    }

    fn move_in_graph(&mut self, command: Command) {
        let (columns, page) = (self.columns(), self.areas().map_or(0, |areas| areas.graph.height));
        let step = |state: &mut Self, step| state.graph.step(&state.tree, columns, step);
        match command {
            Command::Left => step(self, Step::Left),
            Command::Right => step(self, Step::Right),
            Command::Up => step(self, Step::Up),
            Command::Down => step(self, Step::Down),
            Command::PageUp => (0..page.max(MIN_PAGE_ROWS)).for_each(|_| {
                if self.graph.selected(&self.tree) != self.graph.zoomed(&self.tree) {
                    step(self, Step::Up);
                }
            }),
            Command::PageDown => (0..page.max(MIN_PAGE_ROWS)).for_each(|_| step(self, Step::Down)),
            Command::First => self.graph.reset(),
            Command::Last => self.go_deepest(columns),
            Command::Open => self.graph.zoom_in(&self.tree),
            Command::Back => self.graph.zoom_out(&self.tree),
            _ => {}
        }
    }

    fn go_deepest(&mut self, columns: u16) {
        loop {
            let before = self.graph.selected(&self.tree);
            self.graph.step(&self.tree, columns, Step::Down);
            if self.graph.selected(&self.tree) == before {
                return;
            }
        }
    }

    fn move_in_list(&mut self, command: Command) {
        let page = self.areas().map_or(0, |areas| areas.list.height.saturating_sub(1));
        let page = isize::try_from(page.max(MIN_PAGE_ROWS)).unwrap_or(1);
        match command {
            Command::Up => self.list.step(&self.tree, -1),
            Command::Down => self.list.step(&self.tree, 1),
            Command::PageUp => self.list.step(&self.tree, -page),
            Command::PageDown => self.list.step(&self.tree, page),
            Command::First => self.list.step(&self.tree, isize::MIN),
            Command::Last => self.list.step(&self.tree, isize::MAX),
            Command::Open => self.find_function(),
            _ => {}
        }
    }

    /// Searches for the selected function of the list.
    fn find_function(&mut self) {
        let Some(function) = self.list.selected(&self.tree) else { return };
        match Search::for_function(function, &self.tree) {
            Ok(search) => self.search = Some(search),
            Err(error) => return self.show_message(printable(&error.to_string())),
        }
        self.graph.show(&self.tree, self.columns(), ROOT);
        self.go_to_match(false);
    }

    fn columns(&self) -> u16 {
        self.terminal.width
    }

    fn refresh_unless_paused(&mut self) {
        if !self.is_paused {
            self.refresh();
        }
    }

    fn show_next_finding(&mut self) {
        match self.findings.len() {
            0 => self.show_message("no finding in the window"),
            count => self.shown_finding = (self.shown_finding + 1) % count,
        }
    }

    fn show_next_event(&mut self) {
        let profile = self.history.profile(self.span);
        let shown = self.event.unwrap_or_else(|| profile.default_event());
        let next = profile.event_ids().find(|event| *event > shown);
        (self.event, self.thread_state) = (Some(next.unwrap_or(EventId::FIRST)), None);
        self.refresh();
        self.show_message(format!("event {}", printable(&self.shown.first_event().name)));
    }

    /// Shows the next state of the event's samples, and all of them after the last one.
    fn show_next_state(&mut self) {
        let mut states = self.state_values.keys().copied();
        self.thread_state = states.find(|state| self.thread_state.is_none_or(|shown| *state > shown));
        self.refresh();
        match self.thread_state {
            Some(state) => self.show_message(format!("only {state}")),
            None => self.show_message("all samples"),
        }
    }

    /// Updates the shown profile.
    fn refresh(&mut self) {
        let mut profile = self.history.profile(self.span);
        self.findings = match self.span {
            Span::Window => findings(&mut profile),
            // Samples before the window have no times.
            Span::All => Vec::new(),
        };
        let profile = (self.shape)(profile);
        let event = self.event.unwrap_or_else(|| profile.default_event());
        self.event = self.event.or_else(|| profile.samples().first().map(|_| event));
        let profile = match profile.single_event(event) {
            Cow::Owned(single) => single,
            Cow::Borrowed(_) => profile,
        };
        self.state_values = profile.values_by_state(EventId::FIRST);
        self.shown = match self.thread_state {
            Some(state) => profile.shaped(&Shape { states: vec![state], ..Shape::default() }),
            None => profile,
        };
        self.tree = Tree::from_profile(&self.shown, &self.options);
        if let Some(search) = &mut self.search {
            search.update(&self.tree);
        }
    }
}

/// The findings of a profile as texts.
fn findings(profile: &mut Profile) -> Vec<String> {
    profiler_findings::analyze(profile);
    profile.findings().iter().map(|finding| printable(&finding.to_string()).into_owned()).collect()
}
