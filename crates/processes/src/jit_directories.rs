//! Makes the directories in environment variables absolute.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

/// Whether the values of all variables are absolute paths. Each variable (`NAME=VALUE`) ends with a zero byte.
pub(crate) fn are_absolute(variables: &[u8]) -> bool {
    variables.split(|byte| *byte == 0).all(|variable| !has_relative_path(variable))
}

/// The variables with absolute paths: relative ones are below the working directory.
pub(crate) fn made_absolute(variables: &[u8], working_directory: &Path) -> Vec<u8> {
    let mut absolute = Vec::new();
    for variable in variables.split_inclusive(|byte| *byte == 0) {
        match split(variable).filter(|_| has_relative_path(variable)) {
            Some((name, path)) => {
                absolute.extend([name, b"=", working_directory.as_os_str().as_bytes(), b"/", path].concat());
            }
            None => absolute.extend(variable),
        }
    }
    absolute
}

fn has_relative_path(variable: &[u8]) -> bool {
    split(variable).is_some_and(|(_, path)| !matches!(path.first(), Some(b'/' | 0) | None))
}

/// Name and value.
fn split(variable: &[u8]) -> Option<(&[u8], &[u8])> {
    let separator = variable.iter().position(|byte| *byte == b'=')?;
    Some((variable.get(..separator)?, variable.get(separator + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_directories_are_below_the_working_directory() {
        let variables = b"A=tmp\0TMPDIR=./x/../y\0B=/absolute\0C=\0D=last";
        assert!(!are_absolute(variables));
        let absolute = made_absolute(variables, Path::new("/srv/app"));
        assert_eq!(absolute, b"A=/srv/app/tmp\0TMPDIR=/srv/app/./x/../y\0B=/absolute\0C=\0D=/srv/app/last");
        assert!(are_absolute(&absolute) && are_absolute(b"") && are_absolute(b"TMPDIR=\0"));
    }
}
