//! Finds threads that wait for locks until the end of the measurement, and the threads that can own these locks.

mod owner;
mod stuck;
mod text;

pub(crate) use self::stuck::StuckThreads;
