//! Settings of sessions and symbolizers.

use std::{mem, time::Duration};

use profiler::{Profiler, Target};

use crate::{
    Error, Session, Symbolizer,
    error::give_result,
    pointer::{give, take},
};

/// Settings of a session or a symbolizer. [`profiler_builder_start`] and [`profiler_builder_symbolizer`] consume it.
#[derive(Debug, Default)]
pub struct Builder(profiler::Builder);

impl Builder {
    fn set(&mut self, set: impl FnOnce(profiler::Builder) -> profiler::Builder) {
        self.0 = set(mem::take(&mut self.0));
    }
}

/// A builder with default settings: CPU samples at 99 Hz, of no target.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_new() -> *mut Builder {
    give(Builder(Profiler::builder()))
}

/// Frees a builder that was not consumed, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_builder_free(builder: *mut Builder) {
    // SAFETY: see the crate.
    drop(unsafe { take(builder) });
}

/// Samples a process, with all its threads.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_pid(builder: &mut Builder, pid: u32) {
    builder.set(|builder| builder.target(Target::Pid(pid)));
}

/// Samples all processes of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_everything(builder: &mut Builder) {
    builder.set(|builder| builder.target(Target::Everything));
}

/// Samples the children of the target as well.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_children(builder: &mut Builder, wanted: bool) {
    builder.set(|builder| builder.children(wanted));
}

/// The frequency of CPU samples, in hertz.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_frequency_hz(builder: &mut Builder, frequency_hz: u64) {
    builder.set(|builder| builder.frequency_hz(frequency_hz));
}

/// Samples all threads at this frequency, in hertz, whether they run or wait.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_wall_clock_hz(builder: &mut Builder, frequency_hz: u64) {
    builder.set(|builder| builder.wall_clock_hz(frequency_hz));
}

/// Samples each wait of at least this many nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_off_cpu(builder: &mut Builder, min_ns: u64) {
    builder.set(|builder| builder.off_cpu(Duration::from_nanos(min_ns), false));
}

/// Shows inlined functions as frames, where there is debug information.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_inlines(builder: &mut Builder, wanted: bool) {
    builder.set(|builder| builder.inlines(wanted));
}

/// Finds source files and lines, where there is debug information.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_builder_lines(builder: &mut Builder, wanted: bool) {
    builder.set(|builder| builder.lines(wanted));
}

/// Starts to sample, and consumes the builder; null after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_builder_start(
    builder: *mut Builder,
    error: *mut *mut Error,
) -> *mut Session {
    // SAFETY: see the crate.
    let builder = unsafe { take(builder) }.unwrap_or_default();
    let session = builder.0.build().and_then(Profiler::start).map(Session::new);
    // SAFETY: see the crate.
    unsafe { give_result(session, error) }
}

/// A symbolizer with the settings of names, which needs no target. Consumes the builder; null after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_builder_symbolizer(
    builder: *mut Builder,
    error: *mut *mut Error,
) -> *mut Symbolizer {
    // SAFETY: see the crate.
    let builder = unsafe { take(builder) }.unwrap_or_default();
    let symbolizer = builder.0.symbolizer().map(Symbolizer::new);
    // SAFETY: see the crate.
    unsafe { give_result(symbolizer, error) }
}
