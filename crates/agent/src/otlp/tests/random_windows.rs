//! Random windows, and what a request has to contain of them.

use std::collections::BTreeMap;

use profiler_profile::{Frame, FrameKind, Profile, Sample, test_profile};

use super::decoded_request::{FrameTexts, SampleTexts};
use crate::{
    Resource, Window,
    otlp::{OtlpOptions, frame_type},
};

/// A generator of random numbers (Sebastiano Vigna, SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// A random profile whose processes have few resources, most with strange attributes.
pub(super) fn window(seed: u64) -> Window {
    const KEYS: [&str; 16] = [
        "container.id",
        "k8s.pod.name",
        "k8s_pod_name",
        "k8s.pod.label.app.kubernetes.io/name",
        "process.pid",
        "",
        "__name__",
        "__delta__",
        "1st",
        "h\u{e9}",
        "service_name",
        "service/name",
        "thread.name",
        "a b",
        "a.b",
        "//x",
    ];
    const VALUES: [&str; 6] = ["a", "", " ", "h\u{e9}\n", "\u{1b}[31m", "web-0"];
    let mut random = Random::new(seed);
    let resources: Vec<_> = (0..1 + random.below(4))
        .map(|index| {
            let mut attributes = BTreeMap::from([("service.name".to_owned(), format!("service {index}"))]);
            for _ in 0..random.below(12) {
                let key = random.of(&KEYS).to_owned();
                attributes.insert(key, random.of(&VALUES).repeat(random.of(&[1, 1, 1, 3_000])));
            }
            for number in 0..random.of(&[0, 0, 0, 40]) {
                attributes.insert(format!("label.{number}"), "x".to_owned());
            }
            Resource { attributes }
        })
        .collect();
    Window::new(test_profile::random(seed), |_, _| random.of(&resources))
}

/// Options whose limits are often narrow.
pub(super) fn options(random: &mut Random) -> OtlpOptions {
    let defaults = OtlpOptions::default();
    OtlpOptions {
        max_request_bytes: random.of(&[
            defaults.max_request_bytes,
            defaults.max_request_bytes,
            20_000,
            3_000,
        ]),
        max_profile_bytes: random.of(&[
            defaults.max_profile_bytes,
            defaults.max_profile_bytes,
            20_000,
            3_000,
        ]),
        max_profile_samples: random.of(&[16_000, 16_000, 100, 3]),
        max_frames: random.of(&[1_000, 1_000, 3, 1]),
        max_resource_attributes: random.of(&[24, 24, 5, 1]),
        max_thread_names: random.of(&[0, 0, 2, 100]),
        thread_states: random.below(3) > 0,
    }
}

/// The sum of the samples of a window.
pub(super) fn sample_count(profile: &Profile) -> u64 {
    let samples = profile.samples().iter();
    samples.map(|sample| profile.event(sample.event).sample_count(sample.value)).sum()
}

/// The values that a request has to contain, where no limit cuts stacks and no name of a thread is sent.
pub(super) fn expected(window: &Window, options: &OtlpOptions) -> BTreeMap<SampleTexts, i128> {
    let profile = window.profile();
    let mut values = BTreeMap::new();
    for sample in profile.samples() {
        let resource = &window.resources()[window.resource_of(profile.thread(sample.thread).process)];
        let (types, scale) = types(&profile.event(sample.event).name);
        let state = sample.state.filter(|_| options.thread_states);
        let texts = SampleTexts {
            service: resource.attributes["service.name"].clone(),
            types: types.map(str::to_owned),
            attributes: state
                .map(|state| ("thread.state".to_owned(), state.option().to_owned()))
                .into_iter()
                .collect(),
            frames: frames(profile, sample),
        };
        *values.entry(texts).or_default() += i128::from(sample.value) * scale;
    }
    values
}

/// The types of an event of random profiles, and the nanoseconds of a tick.
fn types(event: &str) -> ([&'static str; 4], i128) {
    match event {
        "cpu-clock" => (["samples", "count", "cpu", "nanoseconds"], 1),
        "wall" => (["wall", "nanoseconds", "wall", "nanoseconds"], 1_000_000_000 / 49),
        "off-cpu" => (["off_cpu", "nanoseconds", "off_cpu", "nanoseconds"], 1),
        "page-faults" => (["page_faults", "count", "page_faults", "count"], 1),
        "syscall-time" => (["syscall_time", "nanoseconds", "syscall_time", "nanoseconds"], 1),
        other => panic!("no event of random profiles: {other}"),
    }
}

fn frames(profile: &Profile, sample: &Sample) -> Vec<FrameTexts> {
    let frames: Vec<_> =
        profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)).collect();
    if frames.is_empty() {
        return vec![FrameTexts { function: "[unknown]".to_owned(), ..FrameTexts::default() }];
    }
    // An inlined frame has the place of the frame that contains it.
    let container = |index: usize| {
        let is_container = |frame: &&&Frame| frame.kind != FrameKind::Inlined;
        frames[index..].iter().find(is_container).copied().unwrap_or(frames[frames.len() - 1])
    };
    let frame = |(index, frame): (usize, &&Frame)| frame_texts(profile, frame, container(index));
    frames.iter().enumerate().map(frame).collect()
}

fn frame_texts(profile: &Profile, frame: &Frame, container: &Frame) -> FrameTexts {
    let clean = |text: &str| text.replace('\n', "\\u{a}").replace('\u{1b}', "\\u{1b}");
    let module = container.module.map(|module| profile.module(module));
    let name = match profile.string(frame.name) {
        "" => "[unknown]".to_owned(),
        name => clean(name),
    };
    FrameTexts {
        function: name,
        file: frame.location.map(|location| clean(profile.string(location.file))).unwrap_or_default(),
        line: frame.location.map_or(0, |location| location.line.into()),
        module: module.map(|module| clean(profile.string(module.path))).unwrap_or_default(),
        build_id: module
            .map(|module| module.build_id.iter().map(|byte| format!("{byte:02x}")).collect())
            .unwrap_or_default(),
        frame_type: frame_type::of(container, profile.string(container.name)).unwrap_or_default().to_owned(),
        address: container.address.0,
    }
}
