//! Compares sampled stacks with known call chains.

use std::collections::BTreeMap;

use profiler::{
    Profile,
    profile::{FrameKind, Stack, StackEnd, StackId},
};

/// The least share of exact samples. A few samples hit an instruction that no unwind row covers.
const EXACT_PERCENT: f64 = 99.9;

/// How many wrong stacks a failure message lists.
const MAX_SHOWN: usize = 12;

/// An element of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Link {
    /// A function with this name.
    Function(String),
    /// One frame in a mapped file, of a function that no chain names: `?`.
    One,
    /// Any number of such frames: `*`.
    Any,
}

/// A call chain: function names from the root to the leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain(Vec<Link>);

impl Chain {
    /// Parses a chain: names separated by `;`, `?` for one function that no chain names, `*` for any number of them.
    #[must_use]
    pub fn new(links: &str) -> Self {
        let link = |link| match link {
            "?" => Link::One,
            "*" => Link::Any,
            name => Link::Function(name.to_owned()),
        };
        Self(links.split(';').map(link).collect())
    }

    /// A chain in a C program: the startup code, `main`, and these functions below it.
    #[must_use]
    pub fn below_main(links: &str) -> Self {
        Self::new(&format!("_start;*;main;{links}"))
    }

    /// Whether a stack of another tool, from the root to the leaf, follows this chain.
    #[must_use]
    pub fn is_followed_by(&self, names: &[&str]) -> bool {
        let frames: Vec<_> = names
            .iter()
            .map(|name| UserFrame { name: without_cold_suffix(name), is_in_file: true })
            .collect();
        follow(&frames, &self.0, std::slice::from_ref(self)) > Agreement::None
    }

    fn has_function(&self, function: &str) -> bool {
        self.0.iter().any(|link| matches!(link, Link::Function(name) if name == function))
    }
}

/// How much of a chain a stack follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    /// The stack contradicts the chain.
    None,
    /// The stack ends within the chain: the sample hit a function before it called the next one.
    Beginning,
    /// The stack reaches the end of the chain.
    Whole,
}

/// A user-space frame.
struct UserFrame<'a> {
    name: &'a str,
    is_in_file: bool,
}

/// The samples of a profile and the chains that they are compared with.
#[derive(Debug)]
pub struct ChainComparison<'a> {
    profile: &'a Profile,
    chains: &'a [Chain],
    /// The samples of each stack.
    samples: BTreeMap<StackId, u64>,
}

impl<'a> ChainComparison<'a> {
    /// Compares the samples of a profile with these chains.
    #[must_use]
    pub fn new(profile: &'a Profile, chains: &'a [Chain]) -> Self {
        let mut samples = BTreeMap::new();
        for sample in profile.samples() {
            *samples.entry(sample.stack).or_default() += sample.value;
        }
        Self { profile, chains, samples }
    }

    /// Checks that the samples with user frames follow one of the chains from the leaf to the root.
    ///
    /// # Panics
    /// Panics if they do not.
    pub fn assert_exact(&self) {
        self.assert_exact_to(EXACT_PERCENT);
    }

    /// Like [`assert_exact`](Self::assert_exact), with this least share of exact samples.
    ///
    /// # Panics
    /// Panics if fewer samples are exact.
    pub fn assert_exact_to(&self, least_percent: f64) {
        let wrong = self.wrong();
        let (all, wrong_total) = (self.with_user_frames(), wrong.values().sum::<u64>());
        let percent = 100.0 * (all - wrong_total) as f64 / all.max(1) as f64;
        let mut shown: Vec<_> = wrong.into_iter().collect();
        shown.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        shown.truncate(MAX_SHOWN);
        assert!(
            percent >= least_percent,
            "{percent:.2} % of {all} samples are exact, not {least_percent} %; wrong are\n{shown:#?}\n{:?}",
            self.profile.first_ledger().stacks
        );
    }

    /// The share of samples that follow one chain to its end, in percent.
    #[must_use]
    pub fn whole_percent(&self, chain: &Chain) -> f64 {
        let whole = self.count(|stack| self.agreement(stack, chain) == Agreement::Whole);
        100.0 * whole as f64 / self.with_user_frames().max(1) as f64
    }

    /// The share of samples that follow one of the chains, in percent.
    #[must_use]
    pub fn exact_percent(&self) -> f64 {
        let wrong = self.wrong().values().sum::<u64>();
        100.0 - 100.0 * wrong as f64 / self.with_user_frames().max(1) as f64
    }

    fn with_user_frames(&self) -> u64 {
        self.count(|stack| !self.user_frames(stack).is_empty())
    }

    fn count(&self, condition: impl Fn(&Stack) -> bool) -> u64 {
        let matching = self.samples.iter().filter(|(stack, _)| condition(self.profile.stack(**stack)));
        matching.map(|(_, samples)| samples).sum()
    }

    /// The stacks that follow none of the chains or do not end at the root, as text, with their samples.
    fn wrong(&self) -> BTreeMap<String, u64> {
        let mut wrong = BTreeMap::new();
        for (stack, samples) in &self.samples {
            let stack = self.profile.stack(*stack);
            let frames = self.user_frames(stack);
            let follows_none =
                self.chains.iter().all(|chain| self.agreement(stack, chain) == Agreement::None);
            if !frames.is_empty() && (follows_none || stack.end != StackEnd::Root) {
                let names: Vec<&str> = frames.iter().map(|frame| frame.name).collect();
                *wrong.entry(format!("{:?}: {}", stack.end, names.join(";"))).or_default() += samples;
            }
        }
        wrong
    }

    fn agreement(&self, stack: &Stack, chain: &Chain) -> Agreement {
        follow(&self.user_frames(stack), &chain.0, self.chains)
    }

    /// User frames from the root to the leaf.
    fn user_frames(&self, stack: &Stack) -> Vec<UserFrame<'a>> {
        let frames = stack.frames.iter().rev().map(|frame| self.profile.frame(*frame));
        let user = frames.filter(|frame| frame.kind != FrameKind::Kernel);
        user.map(|frame| UserFrame {
            name: without_cold_suffix(self.profile.string(frame.name)),
            is_in_file: frame.module.is_some(),
        })
        .collect()
    }
}

/// The name of a function without the suffix of the part that the compiler placed in a cold section.
fn without_cold_suffix(name: &str) -> &str {
    name.strip_suffix(".cold").or_else(|| name.strip_suffix(" [clone .cold]")).unwrap_or(name)
}

fn follow(frames: &[UserFrame<'_>], links: &[Link], chains: &[Chain]) -> Agreement {
    let is_named = |frame: &UserFrame<'_>| chains.iter().any(|chain| chain.has_function(frame.name));
    let is_in_no_chain = |frame: &UserFrame<'_>| frame.is_in_file && !is_named(frame);
    match (frames, links) {
        ([], [] | [Link::Any]) => Agreement::Whole,
        ([], _) => Agreement::Beginning,
        (_, []) => Agreement::None,
        ([frame, later @ ..], [Link::Any, next @ ..]) => {
            let here = if is_in_no_chain(frame) { follow(later, links, chains) } else { Agreement::None };
            here.max(follow(frames, next, chains))
        }
        ([frame, later @ ..], [Link::One, next @ ..]) if is_in_no_chain(frame) => follow(later, next, chains),
        ([frame, later @ ..], [Link::Function(name), next @ ..]) if frame.name == name => {
            follow(later, next, chains)
        }
        _ => Agreement::None,
    }
}

#[cfg(test)]
mod tests {
    use profiler::{
        ElfAddress,
        profile::{Frame, Header, ProfileBuilder, SymbolSource, Symbolization},
    };

    use super::*;

    /// A profile of one sample, with its frames from the root to the leaf.
    fn profile(frames: &str, end: StackEnd) -> Profile {
        let mut builder = ProfileBuilder::default();
        let module = builder.module("/bin/app", &[]);
        let mut frame = |name: &str| {
            let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
            let (name, module) = (builder.string(name), (name != "unmapped").then_some(module));
            let address = ElfAddress(0);
            builder.frame(Frame {
                name,
                kind: FrameKind::Native,
                module,
                address,
                location: None,
                symbolization,
            })
        };
        let frames = frames.split(';').rev().map(&mut frame).collect();
        let stack = builder.stack(frames, end);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(0, 0, thread, stack, 1);
        builder.finish(Header::default())
    }

    fn is_exact(frames: &str) -> bool {
        let chains = [Chain::below_main("run;leaf"), Chain::below_main("run;read;*")];
        ChainComparison::new(&profile(frames, StackEnd::Root), &chains).wrong().is_empty()
    }

    #[test]
    fn a_stack_may_end_within_its_chain() {
        assert!(is_exact("_start;__libc_start_main;main;run;leaf"));
        assert!(is_exact("_start;main;run"));
        assert!(is_exact("_start;main;run;read;poll;vdso"));
    }

    #[test]
    fn a_missing_or_additional_frame_is_wrong() {
        assert!(!is_exact("main;run;leaf"));
        assert!(!is_exact("_start;main;leaf"));
        assert!(!is_exact("_start;main;run;leaf;leaf"));
        assert!(!is_exact("_start;main;run;poll"));
        assert!(!is_exact("_start;main;run;read;leaf;poll;run"));
        assert!(!is_exact("_start;unmapped;main;run;leaf"));
    }

    #[test]
    fn a_stack_without_the_end_reason_root_is_wrong() {
        let chains = [Chain::below_main("run")];
        let profile = profile("_start;main;run", StackEnd::Unknown);
        assert_eq!(ChainComparison::new(&profile, &chains).exact_percent(), 0.0);
    }

    #[test]
    fn a_stack_is_whole_only_at_the_end_of_its_chain() {
        let chains = [Chain::below_main("run;leaf")];
        let whole = |frames| {
            ChainComparison::new(&profile(frames, StackEnd::Root), &chains).whole_percent(&chains[0])
        };
        assert_eq!(whole("_start;main;run;leaf"), 100.0);
        assert_eq!(whole("_start;main;run"), 0.0);
    }
}
