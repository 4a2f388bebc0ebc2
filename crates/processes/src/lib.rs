//! Processes: their ids, mappings over time, and the files behind them.

mod address_space;
pub mod cgroup;
mod error;
pub mod maps;
mod procfs;
pub mod root_directory;
pub mod sideband;
mod status;
mod table;

pub use address_space::AddressSpace;
pub use error::FindError;
pub use maps::{Backing, FileId, Mapping};
pub use procfs::ProcFs;
pub use sideband::{SidebandEvent, SidebandEventKind};
pub use status::Status;
pub use table::{Process, ProcessFilter, ProcessKey, ProcessTable};
