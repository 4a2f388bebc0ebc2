//! Entry points of the fuzz targets for files of `/proc/PID`. Built with `--cfg fuzzing` only.

#[cfg(feature = "pods")]
pub use crate::kubernetes::check_configurations as check_container_configurations;
#[cfg(feature = "pods")]
pub use crate::process_context::check_process_context;
pub use crate::{
    capture::check_environment, cgroup::check_paths as check_cgroup_paths,
    futex_waits::parse_any as parse_system_call, status::parse_any as parse_status,
    temporary_files::check_kept as check_kept_environment, wait_partners::parse_any as parse_sockets,
};
