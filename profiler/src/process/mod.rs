//! Processes: their ids, mappings over time, and the files behind them.

pub(crate) mod root;
