//! Settings for .NET runtimes: names, the diagnostics socket, runtime events.

use profiler_dotnet_diagnostics::{EventProvider, EventSet, EventStream};

use super::{Builder, DotnetNames};

impl Builder {
    /// Whether managed (.NET) methods keep the runtime's spelling
    /// (``Dictionary`2[System.__Canon,System.Int32].FindValue(!0)``, `<PlaceAsync>d__7.MoveNext()`) in place of that of C#
    /// (`Dictionary<__Canon,int>.FindValue(__Canon)`, `PlaceAsync`). Default: false.
    pub fn raw_names(mut self, wanted: bool) -> Self {
        self.settings.names.raw = wanted;
        self
    }

    /// Whether names of .NET methods end in their compilation tier, as in `[OptimizedTier1]` or `[PreJIT]`. Each tier of a
    /// method is then a frame of its own. Default: false.
    pub fn dotnet_tiers(mut self, wanted: bool) -> Self {
        self.settings.dotnet.tiers = wanted;
        self
    }

    /// Where the names of .NET methods come from. Memory needs the feature `dotnet-memory`. Default: [`DotnetNames::Auto`].
    pub fn dotnet_names(mut self, source: DotnetNames) -> Self {
        self.settings.dotnet.names = source;
        self
    }

    /// Whether .NET runtimes may be asked for the events of their methods, which name JIT code. Without, no runtime is contacted:
    /// JIT code has the names in perf maps, in jitdumps and in the memory of the process. Default: true.
    pub fn dotnet_events(mut self, wanted: bool) -> Self {
        self.settings.dotnet.contacts_runtimes = wanted;
        self
    }

    /// Whether .NET runtimes (.NET 8 and later) write a perf map during sampling, which names their stubs. A runtime writes
    /// all methods that it has when the perf map is enabled, and one line for each method that it compiles later. The perf
    /// map is disabled and removed at the end. Runtimes that this could block or crash are left alone, with a warning in
    /// the log. Default: false.
    pub fn dotnet_perf_map(mut self, wanted: bool) -> Self {
        self.settings.dotnet.perf_map = wanted;
        self
    }

    /// Whether stacks in the JIT compiler of a .NET runtime have a frame with the method that it compiles, as in
    /// `[compiling app!Shop.Cart.Get(int)]`, as the caller of the compiler's frames. Not in single-file programs, whose JIT
    /// compiler is no library of its own. Default: false.
    pub fn dotnet_compilations(mut self, wanted: bool) -> Self {
        self.settings.dotnet.compilations = wanted;
        self
    }

    /// Adds sets of events that .NET runtimes are asked for, beside the samples: [`Profile::runtime_events`]. A runtime has one
    /// more EventPipe session for each verbosity of the sets. Processes that start later are found by their first sample.
    /// Default: none.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use profiler::{EventSet, Profiler, Target};
    ///
    /// let session = Profiler::builder()
    ///     .target(Target::Pid(1234))
    ///     .runtime_events(EventSet::DEFAULT.iter().copied())
    ///     .build()?
    ///     .start()?;
    /// let profile = session.run_for(Duration::from_secs(10))?;
    /// println!("{} events", profile.runtime_events().len());
    /// # Ok::<(), profiler::Error>(())
    /// ```
    ///
    /// [`Profile::runtime_events`]: crate::Profile::runtime_events
    pub fn runtime_events(mut self, sets: impl IntoIterator<Item = EventSet>) -> Self {
        let requested = &mut self.settings.dotnet.runtime_events.sets;
        for set in sets {
            if !requested.contains(&set) {
                requested.push(set);
            }
        }
        self
    }

    /// Adds a provider whose events .NET runtimes are asked for, such as an `EventSource` of the target. Their fields are those
    /// of the provider's metadata. Default: none.
    pub fn event_provider(mut self, provider: EventProvider) -> Self {
        self.settings.dotnet.runtime_events.providers.push(provider);
        self
    }

    /// Keeps the requested events of one process, the first whose runtime is found, in this stream as well, as the runtime sends
    /// them. They are in one EventPipe session then, with the stacks of all events if there are any: see
    /// [`EventRequest::stream`]. Default: they are not kept.
    ///
    /// ```no_run
    /// use std::{fs::File, time::Duration};
    /// use profiler::{EventSet, EventStream, Profiler, Target};
    ///
    /// let stream = EventStream::default();
    /// let builder = Profiler::builder().target(Target::Pid(1234)).runtime_events([EventSet::Collections]);
    /// let session = builder.event_stream(stream.clone()).build()?.start()?;
    /// session.run_for(Duration::from_secs(10))?;
    /// stream.write(&mut File::create("app.nettrace")?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`EventRequest::stream`]: profiler_dotnet_diagnostics::EventRequest::stream
    pub fn event_stream(mut self, stream: EventStream) -> Self {
        self.settings.dotnet.runtime_events.stream = Some(stream);
        self
    }
}
