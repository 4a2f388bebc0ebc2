//! Limits of backends, and choices of what is sent.

/// Limits of the backend and optional attributes of samples.
///
/// The defaults are those of Pyroscope 2 (`pkg/validation/limits.go`), the narrowest of the known backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpOptions {
    /// The largest request before compression, bytes. The OTLP specification recommends that servers accept 64 MiB; gRPC
    /// servers accept 4 MiB by default.
    pub max_request_bytes: usize,
    /// The largest profile, bytes, after Pyroscope has converted it to pprof (`max_profile_size_bytes`).
    pub max_profile_bytes: usize,
    /// The samples of a profile at most (`max_profile_stacktrace_samples`): combinations of stack and attributes.
    pub max_profile_samples: usize,
    /// The frames of a stack at most (`max_profile_stacktrace_depth`). Of a deeper stack the frames nearest to the leaf are
    /// sent; Pyroscope itself would keep those nearest to the root.
    pub max_frames: usize,
    /// The attributes of a resource at most. Each is a label of a series in Pyroscope, which has at most 30
    /// (`max_label_names_per_series`): four of its own and two of samples.
    pub max_resource_attributes: usize,
    /// The different values of `thread.name` in a resource at most: each is a series in Pyroscope and Parca. 0 sends no
    /// names of threads. Samples of further threads have no name.
    pub max_thread_names: usize,
    /// Whether samples of waits have the attribute `thread.state`, which has at most six values.
    pub thread_states: bool,
}

impl Default for OtlpOptions {
    fn default() -> Self {
        Self {
            max_request_bytes: 4 << 20,
            max_profile_bytes: 4 << 20,
            max_profile_samples: 16_000,
            max_frames: 1_000,
            max_resource_attributes: 24,
            max_thread_names: 0,
            thread_states: true,
        }
    }
}
