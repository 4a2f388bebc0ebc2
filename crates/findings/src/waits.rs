//! Gives each sample of a waiting thread its cause.

use profiler_profile::{Frame, FrameId, FrameKind, Profile, Sample, Stack, Symbolization, ThreadState};

use crate::{
    WaitCause,
    connection_waits::ConnectionWaits,
    followers::{leading_functions, leads},
    frames::{
        application_method, function, is_application, is_libc, is_managed, libc_frames, lock_method,
        own_frames,
    },
    held_times::HeldTimes,
    kernel_rules::{FILE_CALLS, FILE_FUNCTIONS, MEMORY_FILE_FUNCTIONS, SCHEDULER, WAITING_FUNCTIONS},
    pattern::{matches, matches_any},
    primitives::{FUTEX, Leaf, PRIMITIVES, Primitive, Strength},
    rest::{Rest, resting_threads},
    rules::{GIL_RULES, HIDDEN_WAITS, RULES, Rule, SERVICE_THREADS},
    top_level::{is_main_loop, is_work},
};

/// The causes of the waits in a profile.
#[derive(Clone, Debug)]
pub struct Waits {
    /// By stack.
    stacks: Vec<StackWait>,
    /// Whether a thread is a service thread of a runtime.
    is_service: Vec<bool>,
    /// How the process of each thread rests.
    rests: Vec<Rest>,
    /// The times in which threads own locks for which others wait.
    held: HeldTimes,
    connections: ConnectionWaits,
}

/// What a stack says about the wait of its thread.
#[derive(Clone, Copy, Debug)]
struct StackWait {
    cause: WaitCause,
    /// The cause where the thread does not wait for work, although its callers are those of a main loop.
    at_work: WaitCause,
    /// The cause in the state disk.
    in_disk: WaitCause,
    /// Whether the thread left its CPU to others.
    yields: bool,
    /// Whether the thread waits for the interpreter lock: it wakes every few milliseconds to ask for it, and once it has the lock, it
    /// waits for a CPU in the same frames.
    is_for_interpreter_lock: bool,
    /// The first frame of the rule that gives the cause.
    rule: Option<&'static str>,
    /// Whether a service thread with this stack waits for work.
    is_idle_in_service: bool,
    /// Whether the thread sleeps below a method or a function that does work.
    sleeps_at_work: bool,
    /// Whether the methods that say for what the thread waits have no names.
    is_hidden: bool,
    /// Whether another process or a signal can end the wait, by a descriptor.
    is_for_others: bool,
    /// Whether the thread waits until descriptors are ready.
    awaits_descriptors: bool,
}

impl StackWait {
    fn of(cause: WaitCause, in_disk: WaitCause) -> Self {
        Self {
            cause,
            at_work: cause,
            in_disk,
            yields: false,
            is_for_interpreter_lock: false,
            rule: None,
            is_idle_in_service: false,
            sleeps_at_work: false,
            is_hidden: false,
            is_for_others: false,
            awaits_descriptors: false,
        }
    }
}

impl Waits {
    /// Applies the rules to all stacks of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        if profile.samples().iter().all(|sample| sample.state.is_none()) {
            return Self {
                stacks: Vec::new(),
                is_service: Vec::new(),
                rests: Vec::new(),
                held: HeldTimes::default(),
                connections: ConnectionWaits::default(),
            };
        }
        let frames = FrameRules::of(profile);
        let mut waits = Self {
            stacks: profile.stacks().map(|stack| stack_wait(profile, &frames, stack)).collect(),
            is_service: profile
                .threads()
                .map(|thread| matches_any(SERVICE_THREADS, profile.string(thread.comm)))
                .collect(),
            rests: vec![Rest::None; profile.threads().len()],
            held: HeldTimes::of(profile),
            connections: ConnectionWaits::of(profile),
        };
        waits.set_followers_idle(profile);
        waits.rests = resting_threads(profile, &waits);
        waits
    }

    /// Whether one of these rules, by their first frames, gives the cause of each stack, in the order of the stacks.
    pub(crate) fn stacks_of_rules(&self, rules: &[&str]) -> Vec<bool> {
        self.stacks.iter().map(|wait| wait.rule.is_some_and(|rule| rules.contains(&rule))).collect()
    }

    /// Threads that wait for the lock of a thread that waits for work wait for work themselves. That one owns the lock, and waits for work
    /// nevertheless.
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
            if wait.cause == WaitCause::Idle && leads(profile, stack, &leading) {
                wait.at_work = WaitCause::Idle;
            }
        }
    }

    /// Whether the thread of a sample sleeps below a method or a function that does work.
    pub(crate) fn sleeps_at_work(&self, sample: &Sample) -> bool {
        self.stacks[sample.stack.index()].sleeps_at_work
    }

    /// Whether the methods that say for what the thread of a sample waits have no names.
    pub(crate) fn is_hidden(&self, sample: &Sample) -> bool {
        self.stacks[sample.stack.index()].is_hidden
    }

    /// Whether the thread of a sample waits until descriptors are ready.
    pub(crate) fn awaits_descriptors(&self, sample: &Sample) -> bool {
        self.stacks[sample.stack.index()].awaits_descriptors
    }

    /// Whether each stack is that of a thread that waits until descriptors are ready, in the order of the stacks.
    pub(crate) fn stacks_at_descriptors(&self) -> Vec<bool> {
        self.stacks.iter().map(|wait| wait.awaits_descriptors).collect()
    }

    /// Whether another process or a signal can end the wait of a sample.
    pub(crate) fn is_for_others(&self, sample: &Sample) -> bool {
        self.stacks[sample.stack.index()].is_for_others
    }

    /// What each stack says about a wait, in the order of the stacks.
    pub(crate) fn causes(&self) -> impl Iterator<Item = WaitCause> {
        self.stacks.iter().map(|wait| wait.cause)
    }

    /// Whether the thread of a sample waits for work by its stack, and for no child process while it owns a lock.
    pub(crate) fn can_lead(&self, sample: &Sample) -> bool {
        match self.cause(sample) {
            Some(WaitCause::Idle) => true,
            Some(WaitCause::ChildProcess) | None => false,
            Some(_) => {
                let stack = self.stacks[sample.stack.index()];
                sample.state == Some(ThreadState::Blocked)
                    && stack.cause == WaitCause::Idle
                    && self.held.contain(sample)
            }
        }
    }

    /// What the thread of a sample waited for; `None` if it ran, and for events without states.
    #[must_use]
    pub fn cause(&self, sample: &Sample) -> Option<WaitCause> {
        let state = sample.state?;
        let wait = self.stacks[sample.stack.index()];
        match (state, wait.cause) {
            (ThreadState::OnCpu, _) => None,
            (ThreadState::Runnable, _) if wait.is_for_interpreter_lock => Some(WaitCause::Lock),
            (ThreadState::Runnable, _) if !wait.yields => Some(WaitCause::RunQueue),
            (ThreadState::Throttled, _) => Some(WaitCause::CpuQuota),
            (ThreadState::Stopped, _) => Some(WaitCause::Other),
            (ThreadState::Disk, _) => Some(wait.in_disk),
            _ if wait.is_idle_in_service && self.is_service[sample.thread.index()] => Some(WaitCause::Idle),
            (_, WaitCause::Idle) if wait.at_work != WaitCause::Idle && self.held.contain(sample) => {
                Some(wait.at_work)
            }
            _ if wait.awaits_descriptors
                && self.connections.contain(sample)
                && !self.held.contain(sample) =>
            {
                Some(WaitCause::Idle)
            }
            (_, WaitCause::Sleep) if self.rests[sample.thread.index()] != Rest::None => Some(WaitCause::Idle),
            (_, WaitCause::ConditionVariable)
                if wait.is_hidden && self.rests[sample.thread.index()] == Rest::AwaitsOthers =>
            {
                Some(WaitCause::Idle)
            }
            (_, cause) => Some(cause),
        }
    }
}

fn stack_wait(profile: &Profile, frames: &FrameRules, stack: &Stack) -> StackWait {
    let own = OwnFrames { profile, rules: frames, ids: own_frames(profile, stack) };
    let primitive = own.primitive();
    let in_disk = disk_cause(profile, frames, own.ids, primitive.map(|(_, primitive)| primitive));
    if let Some((_, Primitive { cause, strength: Strength::Final, .. })) = primitive {
        let is_for_others = *cause == WaitCause::Idle;
        return StackWait { is_for_others, ..StackWait::of(*cause, in_disk) };
    }
    let rule = own.rule(primitive.map(|(_, primitive)| primitive.leaf));
    let (cause, at_work) = match (rule, primitive) {
        (_, Some((index, primitive))) if own.is_unnamed_command(index, primitive) => {
            (WaitCause::ChildProcess, WaitCause::ChildProcess)
        }
        (Some(rule), _) => (rule.cause, rule.cause),
        (None, Some((index, primitive))) => own.default_causes(index, primitive),
        (None, None) => (WaitCause::Other, WaitCause::Other),
    };
    StackWait {
        at_work,
        rule: rule.map(|rule| rule.frames[0]),
        sleeps_at_work: cause == WaitCause::Sleep && own.sleeps_at_work(),
        yields: primitive.is_some_and(|(_, primitive)| primitive.strength == Strength::Yields),
        is_for_interpreter_lock: rule.is_some_and(|rule| GIL_RULES.contains(&rule.frames[0]))
            && primitive.is_some_and(|(_, primitive)| primitive.leaf == Leaf::TimedSignal),
        is_idle_in_service: application_method(profile, stack).is_none(),
        is_for_others: primitive.is_some_and(|(_, primitive)| {
            primitive.leaf.is_of_descriptors() || primitive.cause == WaitCause::Idle
        }),
        awaits_descriptors: primitive.is_some_and(|(_, primitive)| primitive.leaf.is_of_descriptors()),
        is_hidden: cause == WaitCause::ConditionVariable && own.is_hidden(profile, stack),
        ..StackWait::of(cause, in_disk)
    }
}

/// The frames of a thread that waits, leaf first.
struct OwnFrames<'a> {
    profile: &'a Profile,
    rules: &'a FrameRules,
    ids: &'a [FrameId],
}

impl<'a> OwnFrames<'a> {
    fn frame(&self, id: FrameId) -> &'a Frame {
        self.profile.frame(id)
    }

    /// The primitive that is nearest to the leaf, with the index of its outermost frame.
    fn primitive(&self) -> Option<(usize, &'static Primitive)> {
        let found = self.ids.iter().find_map(|id| self.rules.primitives[id.index()]);
        let is_futex = |id: &FrameId| matches_any(FUTEX.functions, function(self.profile, self.frame(*id)));
        let primitive = found.or_else(|| self.ids.iter().any(is_futex).then_some(&FUTEX))?;
        let libc_frames = libc_frames(self.profile, self.ids);
        let is_of_primitive = |(index, id): &(usize, &FrameId)| {
            let (frame, found) = (self.frame(**id), self.rules.primitives[id.index()]);
            *index < libc_frames
                || frame.kind == FrameKind::Kernel
                || is_libc(self.profile, frame)
                || found.is_some_and(|other| other.leaf == primitive.leaf)
        };
        Some((self.ids.iter().enumerate().take_while(is_of_primitive).count(), primitive))
    }

    /// The rule whose first frame is nearest to the leaf.
    fn rule(&self, leaf: Option<Leaf>) -> Option<&'static Rule> {
        let mut has_method = false;
        self.ids.iter().enumerate().find_map(|(index, id)| {
            let mut rules = self.rules.rules[id.index()].iter();
            let rule =
                rules.find(|rule| !(rule.is_of_runtime && has_method) && self.applies(rule, index, leaf));
            has_method |= is_managed(self.frame(*id));
            rule.copied()
        })
    }

    fn applies(&self, rule: &Rule, index: usize, leaf: Option<Leaf>) -> bool {
        let is_leaf = rule.leaves.is_empty() || leaf.is_some_and(|leaf| rule.leaves.contains(&leaf));
        is_leaf
            && has_callers(self.profile, &rule.frames[1..], &self.ids[index + 1..])
            && match rule.inner {
                Some(inner) => self.waits_itself(inner, index) && !self.is_below_managed_code(index),
                None => rule.cause != WaitCause::Idle || !self.is_in_callback(index),
            }
    }

    /// Whether a loop reaches the primitive by these functions alone, so that no callback waits.
    fn waits_itself(&self, inner: &[&str], index: usize) -> bool {
        let module = self.frame(self.ids[index]).module;
        let libc_frames = libc_frames(self.profile, self.ids).min(index);
        self.ids[libc_frames..index].iter().all(|id| {
            let frame = self.frame(*id);
            frame.kind == FrameKind::Kernel
                || self.rules.primitives[id.index()].is_some()
                || matches_any(inner, function(self.profile, frame))
                || (frame.kind == FrameKind::Native
                    && (is_libc(self.profile, frame) || (is_unsymbolized(frame) && frame.module == module)))
        })
    }

    /// Whether a method of the application called a loop in native code: it waits until the loop ends.
    fn is_below_managed_code(&self, index: usize) -> bool {
        !is_managed(self.frame(self.ids[index]))
            && self.ids[index + 1..].iter().any(|id| is_managed(self.frame(*id)))
    }

    /// Whether a method of the application is between a loop and the leaf.
    fn is_in_callback(&self, index: usize) -> bool {
        let is_method = |frame: &Frame| is_managed(frame) && is_application(self.profile, frame);
        self.ids[..index].iter().any(|id| is_method(self.frame(*id)))
    }

    /// Whether a function that does work is among the callers from an index on.
    fn has_work(&self, from: usize) -> bool {
        self.ids[from..].iter().any(|id| self.rules.works[id.index()])
    }

    /// Whether a thread that sleeps can do so within its work. Names of methods do not show a main loop.
    fn sleeps_at_work(&self) -> bool {
        self.has_work(0) || self.is_in_callback(self.ids.len())
    }

    /// Whether a function of libc without a name waits for a child process, which its caller started by it: `system` and `pclose` jump to
    /// such functions in a library without symbols. The frames of libc and of the kernel end at an index.
    fn is_unnamed_command(&self, end: usize, primitive: &Primitive) -> bool {
        let waits = |id: &FrameId| {
            let is_wait = |found: &Primitive| found.cause == WaitCause::ChildProcess;
            self.frame(*id).kind != FrameKind::Kernel
                && self.rules.primitives[id.index()].is_some_and(is_wait)
        };
        let of_libc = &self.ids[..end];
        primitive.cause == WaitCause::ChildProcess
            && of_libc.iter().rposition(waits).is_some_and(|outermost| {
                of_libc[outermost + 1..].iter().any(|id| is_unsymbolized(self.frame(*id)))
            })
    }

    /// Whether the thread waits in an interpreter or a virtual machine, for what methods without names say.
    fn is_hidden(&self, profile: &Profile, stack: &Stack) -> bool {
        let is_hidden = |id: &FrameId| matches_any(HIDDEN_WAITS, function(profile, self.frame(*id)));
        self.ids.iter().any(is_hidden) && application_method(profile, stack).is_none()
    }

    /// Whether a rule names one of these frames. As none applies, the thread waits in a callback of a loop, or in a call of a library.
    /// Rules for code without symbols name all of its frames.
    fn has_frame_of_rule(&self, callers: &[FrameId]) -> bool {
        let is_named = |id: &&FrameId| !is_unsymbolized(self.frame(**id));
        callers.iter().filter(is_named).any(|id| !self.rules.rules[id.index()].is_empty())
    }

    /// The cause where no rule matches a caller of the primitive, which ends at an index, and that in a thread which does not wait for
    /// work.
    fn default_causes(&self, end: usize, primitive: &Primitive) -> (WaitCause, WaitCause) {
        let callers = &self.ids[end..];
        let is_of_rule = self.has_frame_of_rule(callers);
        let at_work = match primitive.cause {
            WaitCause::Idle if self.has_work(end) || is_of_rule => WaitCause::Other,
            cause => cause,
        };
        let is_idle = at_work == primitive.cause
            && at_work != WaitCause::Sleep
            && !is_of_rule
            && is_main_loop(self.profile, primitive.leaf, callers.iter().map(|id| self.frame(*id)));
        (if is_idle { WaitCause::Idle } else { at_work }, at_work)
    }
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

fn is_unsymbolized(frame: &Frame) -> bool {
    matches!(frame.symbolization, Symbolization::Address(_))
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
    /// Whether the function does work.
    works: Vec<bool>,
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
            works: profile.frames().map(|frame| is_work(profile, frame)).collect(),
        }
    }
}
