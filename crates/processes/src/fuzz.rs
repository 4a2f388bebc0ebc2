//! Entry points of the fuzz targets for files of `/proc/PID`. Built with `--cfg fuzzing` only.

pub use crate::{
    capture::check_environment, cgroup::check_paths as check_cgroup_paths, status::parse_any as parse_status,
};
