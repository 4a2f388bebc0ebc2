//! Parses folded stacks and answers questions about them.

use profiler::{Format, Profile};

use crate::share::assert_share;

/// A distinct stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedStack {
    /// The name of the process.
    pub comm: String,
    /// Function names from the root to the leaf.
    pub frames: Vec<String>,
    /// Number of samples.
    pub count: u64,
}

impl FoldedStack {
    /// Whether a frame has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame == name)
    }

    /// Whether the stack contains these frames, one directly below the other.
    #[must_use]
    pub fn has_chain(&self, names: &[&str]) -> bool {
        self.frames.windows(names.len()).any(|window| window.iter().eq(names))
    }
}

/// All distinct stacks of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedStacks(pub Vec<FoldedStack>);

impl FoldedStacks {
    /// Converts a profile by way of its folded output.
    ///
    /// # Panics
    /// Panics if the folded output is malformed.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Self {
        let mut folded = Vec::new();
        Format::Folded.write(profile, &mut folded).expect("memory takes everything");
        Self::parse(&String::from_utf8(folded).expect("folded stacks are UTF-8"))
    }

    /// Parses folded stacks.
    ///
    /// # Panics
    /// Panics if a line is not `comm;root;...;leaf N`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let stacks = text.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no count in `{line}`"));
            let mut names = stack.split(';').map(str::to_owned);
            let comm = names.next().unwrap_or_default();
            let count = count.parse().unwrap_or_else(|_| panic!("no count in `{line}`"));
            FoldedStack { comm, frames: names.collect(), count }
        });
        Self(stacks.collect())
    }

    /// The stacks that contain a function.
    #[must_use]
    pub fn with(mut self, function: &str) -> Self {
        self.0.retain(|stack| stack.has(function));
        self
    }

    /// Number of all samples.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|stack| stack.count).sum()
    }

    /// Number of samples whose stack satisfies a condition.
    pub fn count(&self, condition: impl Fn(&FoldedStack) -> bool) -> u64 {
        self.0.iter().filter(|stack| condition(stack)).map(|stack| stack.count).sum()
    }

    /// Share of samples whose stack satisfies a condition, in percent.
    pub fn percent(&self, condition: impl Fn(&FoldedStack) -> bool) -> f64 {
        100.0 * self.count(condition) as f64 / self.total().max(1) as f64
    }

    /// Checks the shares of functions with their callees, in percent of the samples, within the bounds of
    /// [`assert_share`](crate::assert_share).
    ///
    /// # Panics
    /// Panics if a share differs more.
    #[track_caller]
    pub fn assert_shares(&self, expected: &[(&str, f64)]) {
        for (function, percent) in expected {
            self.assert_share(function, *percent);
        }
    }

    /// Checks the share of a function as [`Self::assert_shares`] does.
    ///
    /// # Panics
    /// Panics if the share differs more.
    #[track_caller]
    pub fn assert_share(&self, function: &str, expected_percent: f64) {
        /// What a workload has beside the functions with known shares.
        const TOLERANCE_POINTS: f64 = 1.0;
        println!("{function}: {:.1} %", self.percent(|stack| stack.has(function)));
        let found = self.count(|stack| stack.has(function));
        assert_share(found, self.total(), expected_percent, TOLERANCE_POINTS);
    }
}
