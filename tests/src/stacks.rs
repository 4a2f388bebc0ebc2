//! Folded stacks, read back.

use profiler::{Format, Profile, WriteFormat as _};

/// One distinct stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The name of the process.
    pub comm: String,
    /// From the root to the leaf.
    pub frames: Vec<String>,
    /// Samples of it.
    pub count: u64,
}

impl Stack {
    /// Whether a frame has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame == name)
    }

    /// Whether these frames follow each other in it.
    #[must_use]
    pub fn has_chain(&self, names: &[&str]) -> bool {
        self.frames.windows(names.len()).any(|window| window.iter().eq(names))
    }
}

/// All stacks of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks(pub Vec<Stack>);

impl Stacks {
    /// Those of a profile, by way of its folded output.
    ///
    /// # Panics
    /// When that is malformed.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let mut folded = Vec::new();
        profile.write(Format::Folded, &mut folded).expect("memory takes everything");
        Self::parse(&String::from_utf8(folded).expect("folded stacks are UTF-8"))
    }

    /// Reads folded stacks.
    ///
    /// # Panics
    /// When a line is not `comm;root;...;leaf N`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let stacks = text.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no count in `{line}`"));
            let mut names = stack.split(';').map(str::to_owned);
            let comm = names.next().unwrap_or_default();
            let count = count.parse().unwrap_or_else(|_| panic!("no count in `{line}`"));
            Stack { comm, frames: names.collect(), count }
        });
        Self(stacks.collect())
    }

    /// Those that a function is in.
    #[must_use]
    pub fn with(mut self, function: &str) -> Self {
        self.0.retain(|stack| stack.has(function));
        self
    }

    /// How many samples there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|stack| stack.count).sum()
    }

    /// How many samples satisfy a condition.
    pub fn count(&self, condition: impl Fn(&Stack) -> bool) -> u64 {
        self.0.iter().filter(|stack| condition(stack)).map(|stack| stack.count).sum()
    }

    /// The share of samples that satisfy a condition, in percent.
    pub fn percent(&self, condition: impl Fn(&Stack) -> bool) -> f64 {
        100.0 * self.count(condition) as f64 / self.total().max(1) as f64
    }

    /// Checks that a function, with what it calls, has a share of the time, to within three points.
    ///
    /// # Panics
    /// When it has not.
    pub fn assert_share(&self, function: &str, expected_percent: f64) {
        const TOLERANCE_POINTS: f64 = 3.0;
        let found_percent = self.percent(|stack| stack.has(function));
        assert!(
            (found_percent - expected_percent).abs() <= TOLERANCE_POINTS,
            "{function} has {found_percent:.1} % and not {expected_percent} % of {} samples:\n{self:#?}",
            self.total()
        );
    }
}
