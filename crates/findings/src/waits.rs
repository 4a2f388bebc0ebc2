//! Gives each sample of a waiting thread its cause.

use profiler_profile::{Frame, FrameId, FrameKind, Profile, Sample, Stack, Symbolization, ThreadState};

use crate::{
    WaitCause,
    followers::leading_functions,
    frames::{application_method, function, is_managed, lock_method, own_frames},
    kernel_rules::{FILE_CALLS, FILE_FUNCTIONS, MEMORY_FILE_FUNCTIONS, SCHEDULER, WAITING_FUNCTIONS},
    pattern::{matches, matches_any},
    rules::{PRIMITIVES, Primitive, RULES, Rule, SERVICE_THREADS, Strength},
};

/// The causes of the waits in a profile.
///
/// ```
/// use profiler_findings::{WaitCause, Waits};
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// let waits = Waits::of(&profile);
/// let idle = profile.samples().iter().filter(|sample| waits.cause(sample) == Some(WaitCause::Idle));
/// assert_eq!(idle.count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Waits {
    /// By stack.
    stacks: Vec<StackWait>,
    /// Whether a thread is a service thread of a runtime.
    is_service: Vec<bool>,
}

/// What a stack says about the wait of its thread.
#[derive(Clone, Copy, Debug)]
struct StackWait {
    cause: WaitCause,
    /// The cause in the state disk.
    in_disk: WaitCause,
    /// Whether the thread left its CPU to others.
    yields: bool,
    /// Whether a service thread with this stack waits for work.
    is_idle_in_service: bool,
}

impl Waits {
    /// Applies the rules to all stacks of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        if profile.samples().iter().all(|sample| sample.state.is_none()) {
            return Self { stacks: Vec::new(), is_service: Vec::new() };
        }
        let frames = FrameRules::of(profile);
        let mut waits = Self {
            stacks: profile.stacks().map(|stack| stack_wait(profile, &frames, stack)).collect(),
            is_service: profile
                .threads()
                .map(|thread| matches_any(SERVICE_THREADS, profile.string(thread.comm)))
                .collect(),
        };
        waits.set_followers_idle(profile);
        waits
    }

    /// Threads that wait for the lock of a thread that waits for work wait for work themselves.
    fn set_followers_idle(&mut self, profile: &Profile) {
        let leading = leading_functions(profile, self);
        if leading.is_empty() {
            return;
        }
        for (wait, stack) in self.stacks.iter_mut().zip(profile.stacks()) {
            let follows = || lock_method(profile, stack).is_some_and(|method| leading.contains(method));
            if wait.cause == WaitCause::Lock && follows() {
                wait.cause = WaitCause::Idle;
            }
        }
    }

    /// What each stack says about a wait, in the order of the stacks.
    pub(crate) fn causes(&self) -> impl Iterator<Item = WaitCause> {
        self.stacks.iter().map(|wait| wait.cause)
    }

    /// What the thread of a sample waited for; `None` if it ran, and for events without states.
    #[must_use]
    pub fn cause(&self, sample: &Sample) -> Option<WaitCause> {
        let state = sample.state?;
        let wait = self.stacks[sample.stack.index()];
        match (state, wait.cause) {
            (ThreadState::OnCpu, _) => None,
            (ThreadState::Runnable, _) if !wait.yields => Some(WaitCause::RunQueue),
            (ThreadState::Throttled, _) => Some(WaitCause::CpuQuota),
            (ThreadState::Stopped, _) => Some(WaitCause::Other),
            (ThreadState::Disk, _) => Some(wait.in_disk),
            _ if wait.is_idle_in_service && self.is_service[sample.thread.index()] => Some(WaitCause::Idle),
            (_, cause) => Some(cause),
        }
    }
}

fn stack_wait(profile: &Profile, frames: &FrameRules, stack: &Stack) -> StackWait {
    let own = own_frames(profile, stack);
    let primitive = own.iter().find_map(|id| frames.primitives[id.index()]);
    let in_disk = disk_cause(profile, frames, own, primitive);
    if let Some(Primitive { cause, strength: Strength::Final, .. }) = primitive {
        return StackWait { cause: *cause, in_disk, yields: false, is_idle_in_service: false };
    }
    let cause = rule_cause(profile, frames, own).or(primitive.map(|primitive| primitive.cause));
    StackWait {
        cause: cause.unwrap_or(WaitCause::Other),
        in_disk,
        yields: primitive.is_some_and(|primitive| primitive.strength == Strength::Yields),
        is_idle_in_service: application_method(profile, stack).is_none(),
    }
}

/// The cause by the rules over frames of runtimes and libraries.
fn rule_cause(profile: &Profile, frames: &FrameRules, own: &[FrameId]) -> Option<WaitCause> {
    let mut has_method = false;
    own.iter().enumerate().find_map(|(index, id)| {
        let mut rules = frames.rules[id.index()].iter();
        let rule = rules.find(|rule| {
            !(rule.is_of_runtime && has_method) && has_callers(profile, &rule.frames[1..], &own[index + 1..])
        });
        has_method |= is_managed(profile.frame(*id));
        rule.map(|rule| rule.cause)
    })
}

/// The cause of a wait in the state disk: that of the function that waits, or a file where frames show it.
fn disk_cause(
    profile: &Profile,
    frames: &FrameRules,
    own: &[FrameId],
    primitive: Option<&Primitive>,
) -> WaitCause {
    let names = || own.iter().map(|id| function(profile, profile.frame(*id)));
    let waiting = names().find(|name| !matches_any(SCHEDULER, name)).unwrap_or_default();
    let of_function = WAITING_FUNCTIONS.iter().find(|(_, functions)| matches_any(functions, waiting));
    if let Some((cause, _)) = of_function {
        return *cause;
    }
    let has_kernel_names = own.iter().map(|id| profile.frame(*id)).any(is_named_kernel_function);
    let counts = |evidence: &FileEvidence| !(has_kernel_names && *evidence == FileEvidence::Call);
    let of_file = || own.iter().filter_map(|id| frames.files[id.index()]).filter(counts).min();
    match primitive {
        Some(Primitive { cause: cause @ (WaitCause::PageFault | WaitCause::Lock), .. }) => *cause,
        _ => of_file().map_or(WaitCause::Other, FileEvidence::cause),
    }
}

fn is_named_kernel_function(frame: &Frame) -> bool {
    frame.kind == FrameKind::Kernel && matches!(frame.symbolization, Symbolization::Symbol(_))
}

/// What a function says about waits for files, the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FileEvidence {
    /// The file is in memory.
    InMemory,
    /// The kernel waits for a file.
    Kernel,
    /// A function of libc waits for a file, where functions of the kernel have no names.
    Call,
}

impl FileEvidence {
    fn of(frame: &Frame, name: &str) -> Option<Self> {
        let has = |functions| matches_any(functions, name);
        match () {
            () if has(MEMORY_FILE_FUNCTIONS) => Some(Self::InMemory),
            () if has(FILE_FUNCTIONS) => Some(Self::Kernel),
            () if frame.kind != FrameKind::Kernel && has(FILE_CALLS) => Some(Self::Call),
            () => None,
        }
    }

    fn cause(self) -> WaitCause {
        match self {
            Self::InMemory => WaitCause::Other,
            Self::Kernel | Self::Call => WaitCause::FileIo,
        }
    }
}

/// Whether frames that match the patterns are among these callers, in the order of the patterns.
fn has_callers(profile: &Profile, patterns: &[&str], callers: &[FrameId]) -> bool {
    let mut callers = callers.iter();
    patterns.iter().all(|pattern| callers.any(|id| matches(pattern, function(profile, profile.frame(*id)))))
}

/// The rules whose first frame is a frame of the profile, by frame.
struct FrameRules {
    primitives: Vec<Option<&'static Primitive>>,
    rules: Vec<Vec<&'static Rule>>,
    files: Vec<Option<FileEvidence>>,
}

impl FrameRules {
    fn of(profile: &Profile) -> Self {
        let names = || profile.frames().map(|frame| function(profile, frame));
        Self {
            primitives: names()
                .map(|name| PRIMITIVES.iter().find(|primitive| matches_any(primitive.functions, name)))
                .collect(),
            rules: names()
                .map(|name| RULES.iter().filter(|rule| matches(rule.frames[0], name)).collect())
                .collect(),
            files: profile.frames().map(|frame| FileEvidence::of(frame, function(profile, frame))).collect(),
        }
    }
}
