//! What a runtime's events tell of its code: methods with their places and times, and the modules they are of.
//!
//! Payloads: dotnet/runtime, src/coreclr/vm/ClrEtwAll.man, `MethodLoadUnloadVerbose` and `ModuleLoadUnload`. Later
//! versions only append to them.

use profiler_dotnet_symbols::eventpipe::{
    Bytes, Short,
    nettrace::{Clock, Event},
};
use std::collections::HashMap;

use super::room::{Room, Share};
use crate::names::{Name, Names};
use profiler_dotnet_symbols::managed::{self, Tier};

/// Tells of methods and modules when they are loaded.
pub(super) const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
/// Tells of all methods and modules there are, when it is asked.
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";

/// Methods between two looks at them. The largest .NET programs have a hundred thousand, with all tiers.
const MAX_METHODS: usize = 1 << 18;

/// Modules. The largest programs have a few thousand.
const MAX_MODULES: usize = 1 << 15;

/// The longest name of a module that is kept.
const MAX_MODULE_BYTES: usize = 1 << 10;

/// What a module takes in the table beside its name.
const MODULE_BYTES: usize = 2 * size_of::<(u64, String)>();

/// A method's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// Since when it is there (`CLOCK_MONOTONIC`); 0 where it was there before anybody asked.
    pub(super) from_ns: u64,
    pub(super) start: u64,
    pub(super) size: u32,
    pub(super) module: u64,
    pub(super) tier: Tier,
    /// Without its module.
    pub(super) name: Name,
}

/// What was heard since the last look.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) methods: Vec<Method>,
    pub(super) names: Names,
    /// Names of modules, by their numbers.
    pub(super) modules: HashMap<u64, String>,
    /// Events that contradict themselves.
    pub(super) malformed_events: u64,
    /// There was no room for some.
    pub(super) truncated: bool,
    share: Share,
}

/// What an event means here.
enum Meaning {
    Method,
    Module,
    RundownEnds,
}

/// When the methods that an event tells of came to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// At the time of the event.
    Event(TimeBase),
    /// At this time.
    Ns(u64),
}

/// From a stream's clock to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeBase {
    clock: Clock,
    begin_ns: u64,
}

impl TimeBase {
    /// The stream began a moment before `now_ns`. Its clock is `CLOCK_MONOTONIC` too, but a process may have been given
    /// another zero of it (time_namespaces(7)), and may say whatever it wants.
    pub(super) fn new(clock: Clock, now_ns: u64) -> Self {
        const MOMENT_NS: u64 = 10_000_000_000;
        let begin_ns = nanoseconds(clock.begin_ticks, clock.ticks_per_second);
        let is_monotonic = begin_ns <= now_ns && now_ns - begin_ns < MOMENT_NS;
        Self { clock, begin_ns: if is_monotonic { begin_ns } else { now_ns } }
    }

    fn ns(self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.clock.begin_ticks);
        self.begin_ns.saturating_add(nanoseconds(since, self.clock.ticks_per_second))
    }
}

fn nanoseconds(ticks: u64, per_second: u64) -> u64 {
    const NS_PER_S: u128 = 1_000_000_000;
    u64::try_from(u128::from(ticks) * NS_PER_S / u128::from(per_second.max(1))).unwrap_or(u64::MAX)
}

impl Heard {
    /// Nothing yet, and it takes its memory from `room`.
    pub(super) fn with(room: &Room) -> Self {
        Self { share: Share::of(room), ..Self::default() }
    }

    /// Takes an event. True when it is the end of a rundown: all was told.
    pub(super) fn hear(&mut self, event: &Event<'_>, since: Since) -> bool {
        let taken = match meaning(event) {
            None => Ok(()),
            Some(Meaning::RundownEnds) => return true,
            Some(Meaning::Module) => self.module(event.payload),
            Some(Meaning::Method) => {
                let from_ns = match since {
                    Since::Event(base) => base.ns(event.ticks),
                    Since::Ns(from_ns) => from_ns,
                };
                self.method(event.payload, from_ns)
            }
        };
        self.malformed_events += u64::from(taken.is_err());
        false
    }

    fn method(&mut self, payload: &[u8], from_ns: u64) -> Result<(), Short> {
        let mut bytes = Bytes(payload);
        let _method = bytes.u64()?;
        let (module, start, size) = (bytes.u64()?, bytes.u64()?, bytes.u32()?);
        let (_token, flags) = (bytes.u32()?, bytes.u32()?);
        let (class, method, signature) = (bytes.text()?, bytes.text()?, bytes.text()?);
        let name = managed::of_event(&class, &method, &signature);
        let room = self.methods.len() < MAX_METHODS && self.share.take(name.len() + size_of::<Method>());
        match self.names.push(name.as_bytes()) {
            Some(name) if room => {
                let tier = Tier::of_event(flags);
                self.methods.push(Method { from_ns, start, size, module, tier, name });
            }
            _ => self.truncated = true,
        }
        Ok(())
    }

    fn module(&mut self, payload: &[u8]) -> Result<(), Short> {
        let mut bytes = Bytes(payload);
        let (module, _assembly) = (bytes.u64()?, bytes.u64()?);
        let (_flags, _reserved) = (bytes.u32()?, bytes.u32()?);
        let path = bytes.text()?;
        let name = module_name(&path);
        let is_name = !name.is_empty() && name.len() <= MAX_MODULE_BYTES;
        if is_name && self.modules.len() < MAX_MODULES && self.share.take(name.len() + MODULE_BYTES) {
            self.modules.insert(module, name.to_owned());
        }
        Ok(())
    }
}

/// An event's number means something else with each provider.
fn meaning(event: &Event<'_>) -> Option<Meaning> {
    const METHOD_LOAD_VERBOSE: u32 = 143;
    const MODULE_LOAD: u32 = 152;
    const METHOD_DC_START_VERBOSE: u32 = 143;
    const METHOD_DC_END_VERBOSE: u32 = 144;
    const DC_END_COMPLETE: u32 = 146;
    const MODULE_DC_START: u32 = 153;
    const MODULE_DC_END: u32 = 154;
    match (event.kind.provider.as_str(), event.kind.id) {
        (RUNTIME, METHOD_LOAD_VERBOSE) => Some(Meaning::Method),
        (RUNTIME, MODULE_LOAD) => Some(Meaning::Module),
        (RUNDOWN, METHOD_DC_START_VERBOSE | METHOD_DC_END_VERBOSE) => Some(Meaning::Method),
        (RUNDOWN, MODULE_DC_START | MODULE_DC_END) => Some(Meaning::Module),
        (RUNDOWN, DC_END_COMPLETE) => Some(Meaning::RundownEnds),
        _ => None,
    }
}

/// The file's name without its directory and kind. Modules without a file have a name of their own there.
fn module_name(path: &str) -> &str {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.strip_suffix(".dll").or_else(|| file.strip_suffix(".exe")).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_dotnet_symbols::eventpipe::{
        nettrace::Kind,
        test_stream::{method, module},
    };

    fn hear(heard: &mut Heard, provider: &str, id: u32, payload: &[u8]) -> bool {
        let kind = Kind { provider: provider.to_owned(), id };
        heard.hear(&Event { kind: &kind, ticks: 5, payload }, Since::Ns(9))
    }

    #[test]
    fn an_events_number_means_what_its_provider_says() {
        let mut heard = Heard::default();
        let payload = method(3, 0x1000, 16, ["A.B+C", "Run", "instance void  (int32,class System.String)"]);
        for (provider, id) in [(RUNTIME, 143), (RUNDOWN, 143), (RUNDOWN, 144)] {
            assert!(!hear(&mut heard, provider, id, &payload));
        }
        for (provider, id) in [(RUNTIME, 144), (RUNTIME, 141), ("Other", 143), (RUNDOWN, 150)] {
            assert!(!hear(&mut heard, provider, id, &payload));
        }
        assert_eq!(heard.methods.len(), 3);
        let Method { from_ns, start, size, module, tier, name } = heard.methods[0];
        assert_eq!((from_ns, start, size, module, tier), (9, 0x1000, 16, 3, Tier::QuickJitted));
        assert_eq!(heard.names.get(name), "A.B+C.Run(int32,class System.String)");
        assert!(hear(&mut heard, RUNDOWN, 146, &[]));
    }

    #[test]
    fn what_was_not_compiled_while_the_program_ran_is_precompiled() {
        const FLAGS_AT: usize = 32;
        let mut heard = Heard::default();
        for flags in [0, 2, 4, 1, 8, 9] {
            let mut payload = method(3, 0x1000, 16, ["A", "Run", "void  ()"]);
            payload[FLAGS_AT] = flags;
            hear(&mut heard, RUNDOWN, 144, &payload);
        }
        let precompiled: Vec<_> =
            heard.methods.iter().map(|method| method.tier == Tier::Precompiled).collect();
        assert_eq!(precompiled, [true, true, true, false, false, false]);
    }

    #[test]
    fn modules_are_called_like_their_assemblies() {
        let mut heard = Heard::default();
        for (number, path) in [
            (1, "/app/My.App.dll"),
            (2, "tool.exe"),
            (3, "Anonymously Hosted DynamicMethods Assembly"),
            (4, "/"),
        ] {
            hear(&mut heard, RUNDOWN, 154, &module(number, path));
        }
        hear(&mut heard, RUNTIME, 152, &module(5, "C:\\x\\Late.dll"));
        let name = |number| heard.modules.get(&number).map(String::as_str);
        assert_eq!(
            [1, 2, 3, 4, 5].map(name),
            [
                Some("My.App"),
                Some("tool"),
                Some("Anonymously Hosted DynamicMethods Assembly"),
                None,
                Some("Late")
            ]
        );
    }

    #[test]
    fn payloads_that_end_too_early_are_counted() {
        let mut heard = Heard::default();
        let payload = method(3, 0x1000, 16, ["A", "B", "void  ()"]);
        let needed = payload.len() - 2;
        for length in 0..needed {
            hear(&mut heard, RUNTIME, 143, &payload[..length]);
        }
        assert_eq!(heard.malformed_events, needed as u64);
        assert!(heard.methods.is_empty());
    }

    #[test]
    fn a_clock_with_another_zero_is_moved_to_ours() {
        let clock = Clock { begin_ticks: 100, ticks_per_second: 1_000 };
        assert_eq!(TimeBase::new(clock, 100_000_050).ns(101), 101_000_000);
        let now_ns = 70_000_000_000_000;
        assert_eq!(TimeBase::new(clock, now_ns).ns(101), now_ns + 1_000_000);
        assert_eq!(TimeBase::new(clock, now_ns).ns(0), now_ns);
        let broken = Clock { begin_ticks: u64::MAX, ticks_per_second: 0 };
        assert_eq!(TimeBase::new(broken, now_ns).ns(u64::MAX), now_ns);
    }
}
