//! What .NET runtimes are asked for to name their methods.

/// What .NET runtimes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeRequests {
    /// When a runtime is asked for the events of its methods.
    pub events: MethodEventRequests,
    /// Whether the methods of runtimes that report none are read from the memory of their process, with the feature
    /// `dotnet-memory`. The runtime is not contacted.
    pub memory: bool,
    /// Whether what describes the frames of these methods is read as well ([`Symbolizer::take_function_frames`](crate::Symbolizer::take_function_frames)).
    pub frames: bool,
    /// Perf maps, which need the events.
    pub perf_maps: bool,
    /// Which method the JIT compiles, which needs the events ([`Symbolizer::compiled_method`](crate::Symbolizer::compiled_method)).
    pub compilations: bool,
}

/// When a .NET runtime is asked for the events of its methods. For them it opens an EventPipe session and lists its methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodEventRequests {
    /// Never: no runtime is contacted for its methods.
    Never,
    /// At the first sample of its JIT code.
    Always,
    /// Once the memory of its process lacks the names of its code: of runtimes before .NET 9, of code that the runtime frees, of
    /// code that is no known stub. As [`Always`](Self::Always) where memory is not read.
    #[default]
    WhereMemoryLacks,
}

impl Default for RuntimeRequests {
    /// Memory, and events where it lacks names.
    fn default() -> Self {
        Self { events: MethodEventRequests::WhereMemoryLacks, memory: true, ..Self::NOTHING }
    }
}

impl RuntimeRequests {
    /// No runtime is contacted.
    pub const NOTHING: Self = Self {
        events: MethodEventRequests::Never,
        memory: false,
        frames: false,
        perf_maps: false,
        compilations: false,
    };
}
