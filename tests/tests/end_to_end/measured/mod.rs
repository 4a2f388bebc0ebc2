//! End-to-end tests that measure: shares of time against an independent clock, losses, costs. Each runs alone.

mod short_programs;
mod timer_ticks;
mod waiting_threads;
