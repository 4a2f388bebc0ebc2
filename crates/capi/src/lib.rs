//! The C interface of [`profiler`]: a builder, sessions, profiles in every format, and symbols. The header is `include/profiler.h`.
//!
//! Each object is opaque and has a function that frees it; a function that consumes an object says so. A pointer that a caller
//! passes must be one that a function of this interface returned and that was not freed or consumed since; unless a function
//! says otherwise, it must not be null. An object may be used by one thread at a time.
//!
//! A function that can fail returns null or `false`, and stores an [`Error`] where `error` points to, unless that is null. A panic
//! ends the program.
//!
//! ```c
//! profiler_error *error = NULL;
//! profiler_builder *builder = profiler_builder_new();
//! profiler_builder_pid(builder, pid);
//! profiler_session *session = profiler_builder_start(builder, &error);
//! if (!session) {
//!     fprintf(stderr, "%s\n", profiler_error_message(error));
//!     profiler_error_free(error);
//!     return 1;
//! }
//! sleep(5);
//! profiler_profile *profile = profiler_session_stop(session, &error);
//! if (profile && profiler_profile_write(profile, "folded", STDOUT_FILENO, &error))
//!     profiler_profile_free(profile);
//! ```

// A C interface trusts the pointers of its caller. What it asks of them is said above, once for all functions.
#![allow(unsafe_code, clippy::missing_safety_doc)]

mod builder;
mod error;
mod pointer;
mod profile;
mod session;
mod symbolizer;

pub use self::{
    builder::{
        Builder, profiler_builder_children, profiler_builder_everything, profiler_builder_free,
        profiler_builder_frequency_hz, profiler_builder_inlines, profiler_builder_lines,
        profiler_builder_new, profiler_builder_off_cpu, profiler_builder_pid, profiler_builder_start,
        profiler_builder_symbolizer, profiler_builder_wall_clock_hz,
    },
    error::{Error, ErrorKind, profiler_error_free, profiler_error_kind_of, profiler_error_message},
    profile::{Profile, profiler_profile_free, profiler_profile_samples, profiler_profile_write},
    session::{
        Session, profiler_session_free, profiler_session_has_ended, profiler_session_stop,
        profiler_session_take_profile,
    },
    symbolizer::{
        Address, Symbolizer, Symbols, profiler_symbolizer_free, profiler_symbolizer_symbolize_file,
        profiler_symbolizer_symbolize_kernel, profiler_symbolizer_symbolize_process, profiler_symbols_count,
        profiler_symbols_file, profiler_symbols_free, profiler_symbols_functions, profiler_symbols_line,
        profiler_symbols_module, profiler_symbols_name,
    },
};
