//! Processes: their ids, mappings over time, and the files behind them.

mod address_space;
pub(crate) mod cgroup;
pub(crate) mod event;
pub(crate) mod maps;
mod proc;
pub(crate) mod root;
mod status;
mod table;

pub(crate) use address_space::AddressSpace;
pub(crate) use event::{ProcessEvent, ProcessEventKind};
pub(crate) use maps::{Backing, FileId, Mapping};
pub(crate) use proc::Proc;
pub(crate) use status::Status;
pub(crate) use table::{Interest, Process, ProcessKey, ProcessTable};
