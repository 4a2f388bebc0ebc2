//! Method names of .NET code.

pub mod eventpipe;
pub mod managed;
pub mod pe;
pub mod readytorun;
