//! BPF programs that sample stacks at timer ticks and follow fork, exec and exit, with their maps.

mod cgroup;
mod config;
mod counters;
mod epilogue_scan;
mod kernel_memory;
mod log;
mod maps;
mod pid_namespace;
mod process_events;
mod programs;
mod ring_buffer;
mod sample;
mod scratch;
mod stack_capture;
mod stack_copy;
mod stale_mappings;
mod target_filter;
mod unwind_table;
mod unwinder;
mod user_address_space;
mod user_memory;
mod user_registers;
mod vma_search;
mod wall;
