//! The whole program on the real kernel, with programs whose call chains and shares are known.

mod aspnet;
mod bad_unwinding;
mod chains;
mod cpus;
mod debug_information;
mod differential;
mod doctor;
mod dotnet;
mod dotnet_hostile;
mod dotnet_perf_map;
mod dotnet_runtime;
mod jit;
mod leftovers;
mod lifetimes;
mod node;
mod privileges;
mod readable_names;
mod real_programs;
mod single_file;
mod symbol_server_network;
mod symbol_servers;
mod targets;
mod threads;
mod unwinding;

/// The median of what a machine under load does to a test is nothing; its worst is a stack or two that were taken
/// while a program began or ended. This many percent have to be right.
const NEARLY_ALL_PERCENT: f64 = 98.0;
