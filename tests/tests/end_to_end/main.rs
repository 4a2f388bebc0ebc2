//! End-to-end tests: the whole profiler on the running kernel, with workloads of known call chains and shares.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

mod agent;
mod aspnet;
mod bad_unwinding;
mod blocking_targets;
mod c_interface;
mod chains;
mod command_user;
mod counted_events;
mod cpu_findings;
mod cpus;
mod debug_information;
mod differential;
mod doctor;
mod dotnet;
mod dotnet_compilations;
mod dotnet_events;
mod dotnet_false_runtime;
mod dotnet_hostile;
mod dotnet_memory;
mod dotnet_memory_search;
mod dotnet_method_memory;
mod dotnet_monitors;
mod dotnet_nettrace;
mod dotnet_perf_map;
mod dotnet_replaced;
mod dotnet_requests;
mod dotnet_reuse;
mod dotnet_runtime;
mod dotnet_services;
mod dotnet_single_steps;
mod dotnet_storms;
mod dotnet_unwinding;
mod findings;
mod frequency;
mod go_programs;
mod hostile_names;
mod inherited_jit;
mod jit;
mod kernel_addresses;
mod leftovers;
mod lifetimes;
mod measured;
mod mutex_owners;
mod node;
mod off_cpu;
mod overhead;
mod privileges;
mod readable_names;
mod real_programs;
mod record;
mod record_incidents;
mod return_probes;
mod sandbox;
mod single_file;
mod situations;
mod symbol_server_network;
mod symbol_servers;
mod symbolizer;
mod targets;
mod threads;
mod unwinding;
mod waiting_accounts;
mod wall;

/// The least share of correct stacks. A busy machine costs at most a few, which are sampled while a program starts or
/// exits.
const NEARLY_ALL_PERCENT: f64 = 98.0;
