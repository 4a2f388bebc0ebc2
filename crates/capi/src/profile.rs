//! A profile, and writing it.

use std::{
    ffi::c_char,
    io::{self, Write as _},
    mem::ManuallyDrop,
    os::fd::FromRawFd as _,
};

use profiler::Format;

use crate::{
    Error, ErrorKind,
    error::store,
    pointer::{take, text},
};

/// A profile. [`profiler_profile_free`] frees it.
#[derive(Debug)]
pub struct Profile(profiler::Profile);

impl Profile {
    pub(crate) fn new(profile: profiler::Profile) -> Self {
        Self(profile)
    }
}

/// The number of samples.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_profile_samples(profile: &Profile) -> usize {
    profile.0.samples().len()
}

/// Writes a profile to a file descriptor, which stays open. The format is one by its name on the command line: `folded`, `svg`,
/// `html`, `pprof`, `profile` (a recording).
/// `format` ends with a null byte, and `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_profile_write(
    profile: &Profile,
    format: *const c_char,
    fd: i32,
    error: *mut *mut Error,
) -> bool {
    // SAFETY: see the crate.
    let format = unsafe { text(format) }.parse::<Format>();
    let format = format.map_err(|error| Error::new(ErrorKind::InvalidInput, &error.to_string()));
    // SAFETY: the descriptor is open during the call.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    // It is the caller's, who closes it.
    let mut file = ManuallyDrop::new(file);
    let written = format.and_then(|format| write(&profile.0, format, &mut file).map_err(Error::from));
    match written {
        Ok(()) => true,
        Err(failure) => {
            // SAFETY: see the crate.
            unsafe { store(failure, error) };
            false
        }
    }
}

fn write(profile: &profiler::Profile, format: Format, file: &mut std::fs::File) -> io::Result<()> {
    let mut buffered = io::BufWriter::new(file);
    format.write(profile, &mut buffered)?;
    buffered.flush()
}

/// Frees a profile, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_profile_free(profile: *mut Profile) {
    // SAFETY: see the crate.
    drop(unsafe { take(profile) });
}
