//! Processes: their ids, mappings over time, and the files behind them.

mod address_space;
pub mod cgroup;
mod error;
pub mod event;
pub mod maps;
mod proc;
pub mod root;
mod status;
mod table;

pub use address_space::AddressSpace;
pub use error::FindError;
pub use event::{ProcessEvent, ProcessEventKind};
pub use maps::{Backing, FileId, Mapping};
pub use proc::Proc;
pub use status::Status;
pub use table::{Interest, Process, ProcessKey, ProcessTable};
