//! Entry points of the fuzz targets for what backends, the kubelet and files of the spool say. Built with `--cfg fuzzing` only.

pub use crate::{
    delivery::{check_response, check_spool, message_file},
    naming::check_pod_list,
};
