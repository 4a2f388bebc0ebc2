//! Collects the methods that a .NET runtime compiles, and its other events, through its diagnostics socket (EventPipe).
//!
//! The target needs no setting, and nothing is written into it. Its runtime is a hostile peer: each wait has a deadline, each
//! buffer a limit that the sessions of one tenant share with the others.
//!
//! ```no_run
//! use std::{error::Error, sync::Arc, thread, time::Duration};
//!
//! use profiler_dotnet_diagnostics::{EventRequest, EventSet, EventSources, MemoryBudget};
//! use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable, monotonic_time};
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! let mut processes = ProcessTable::new(Arc::new(ProcFs::live()), ProcessFilter::All);
//! processes.prefetch(Pid(4242));
//! let request = EventRequest { sets: vec![EventSet::Collections], ..EventRequest::default() };
//! let mut sources = EventSources::new(request, MemoryBudget::default());
//! sources.poll(&processes);
//! thread::sleep(Duration::from_secs(10));
//! sources.begin_stop();
//! for process in sources.receive(monotonic_time(), true) {
//!     println!("{}: {} events", process.comm, process.events.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`EventSources`]: the runtimes of many processes, and their events beside those of methods
//! * [`RuntimeNames`]: the methods of one process by address and time

mod clock;
mod collection_numbers;
mod command;
mod compilations;
mod event_buffer;
mod event_gaps;
mod event_listener;
mod event_pairs;
mod event_request;
mod event_sessions;
mod event_source;
mod event_sources;
mod event_stream;
mod event_threads;
#[cfg(fuzzing)]
pub mod fuzz;
mod kept_events;
mod listener;
mod memory_budget;
mod method_events;
mod method_table;
mod module_names;
mod omitted_counts;
mod raised_capability;
mod report;
mod requested_perf_map;
mod runtime_names;
mod runtime_process;
mod runtime_thread;
mod session;
mod socket;
mod stream;
mod sys;
#[cfg(test)]
mod tests;

#[cfg(any(test, fuzzing, feature = "testing"))]
pub use self::runtime_process::SIMULATED_SOCKET_NAME;
pub use self::{
    event_buffer::CollectedEvent,
    event_listener::LostEvents,
    event_request::{EventProvider, EventRequest, EventSet, InvalidEventProvider},
    event_sources::{EventSources, ProcessEvents},
    event_stream::{EventStream, StreamEnd},
    event_threads::{EventThread, ThreadReader},
    memory_budget::MemoryBudget,
    method_table::{Completeness, MethodTable, RuntimeMethod},
    omitted_counts::OmittedCount,
    report::ReportScope,
    runtime_names::{RECORDING_FILE, RuntimeNames},
    runtime_process::{PerfMapPaths, RuntimeProcess},
    socket::probe,
};
