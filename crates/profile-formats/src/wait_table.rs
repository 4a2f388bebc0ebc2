//! What threads wait for and where in the program, for the table of an event whose samples have states.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use profiler_findings::{ProgramPlace, WaitCause};
use profiler_profile::{FrameKind, Profile, Stack, StringId, sum};

/// What threads do below a method of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Activity(Option<WaitCause>);

impl Activity {
    /// That of a stack, by the frame with the cause of its wait.
    fn of(profile: &Profile, stack: &Stack) -> Self {
        let frames = stack.frames.iter().map(|id| profile.frame(*id));
        let wait = frames.rev().find(|frame| frame.kind == FrameKind::Wait);
        Self(wait.and_then(|frame| WaitCause::of_frame_name(profile.string(frame.name))))
    }

    /// The words of the table.
    pub(super) fn text(self) -> String {
        match self.0 {
            None => "on CPU".to_owned(),
            Some(cause) => cause.frame_name().trim_matches(['[', ']']).to_owned(),
        }
    }
}

/// The values of the samples of an event, by what threads do and where.
#[derive(Debug, Default)]
pub(super) struct WaitTable<'a> {
    /// By activity and method of the program, the most first. A sample without a stack has no method.
    pub(super) methods: Vec<((Activity, Option<&'a str>), u64)>,
    /// By call path, the most first.
    pub(super) paths: Vec<(WaitPath, u64)>,
}

/// A call path up to the method of the program, and what threads do there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitPath {
    /// The name of the process.
    pub(super) comm: StringId,
    /// The names of the method and of its callers, leaf first.
    pub(super) functions: Vec<StringId>,
    pub(super) activity: Activity,
}

impl<'a> WaitTable<'a> {
    /// The table of a profile with one event, in which waits have the frames of their causes; `None` if its samples have no states.
    pub(super) fn of(profile: &'a Profile) -> Option<Self> {
        profile.samples().iter().any(|sample| sample.state.is_some()).then(|| {
            // Stacks are much fewer than samples.
            let mut stacks = HashMap::<_, u64>::new();
            for sample in profile.samples() {
                let comm = profile.process(profile.thread(sample.thread).process).comm;
                sum::add(stacks.entry((comm, sample.stack)).or_default(), sample.value);
            }
            let (mut methods, mut paths) = (BTreeMap::new(), BTreeMap::new());
            for ((comm, stack), value) in stacks {
                let stack = profile.stack(stack);
                let activity = Activity::of(profile, stack);
                let place = ProgramPlace::of(profile, stack);
                let method = place.map(|place| place.method);
                let frames = place.map_or(&[][..], |place| place.frames);
                let functions = frames.iter().map(|frame| profile.frame(*frame).name).collect();
                sum::add(methods.entry((activity, method)).or_default(), value);
                sum::add(paths.entry(WaitPath { comm, functions, activity }).or_default(), value);
            }
            Self { methods: most_first(methods), paths: most_first(paths) }
        })
    }
}

fn most_first<K: Ord>(values: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut rows: Vec<_> = values.into_iter().collect();
    // The sort is stable: rows with equal values are in the order of their keys.
    rows.sort_by_key(|(_, value)| Reverse(*value));
    rows
}
