//! Objects and strings that cross the interface.

use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr, c_char},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    slice,
};

/// Hands an object to the caller, who frees it with the function of its type.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from the caller; `None` for null.
///
/// # Safety
/// The pointer is null or from [`give`], and was not taken since.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: by the condition of this function, the pointer is that of a box and the only one.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// The text of the caller; what is not UTF-8 is replaced.
///
/// # Safety
/// The text ends with a null byte and lives during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Cow<'a, str> {
    // SAFETY: by the condition of this function.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
}

/// The path of the caller.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path_of<'a>(pointer: *const c_char) -> &'a Path {
    // SAFETY: by the condition of this function.
    let path = unsafe { CStr::from_ptr(pointer) };
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// The values of the caller.
///
/// # Safety
/// The pointer is that of `count` values, which live during the call, or `count` is 0.
pub(crate) unsafe fn values<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by the condition of this function.
    unsafe { slice::from_raw_parts(pointer, count) }
}

/// A text for the caller. Names of a hostile program can contain null bytes, which end a C string.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}
