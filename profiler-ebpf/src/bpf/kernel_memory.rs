//! Reads fields of kernel structures at offsets from BTF.

use core::{
    ffi::c_void,
    mem::{MaybeUninit, transmute},
};

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::wall::RDONLY_CAST;

/// Reads the first words of an array at an address; `false` when the kernel cannot read there, or they are too many.
#[inline(always)]
pub(crate) fn read_words<const WORDS: usize>(words: &mut [u64; WORDS], bytes: u32, address: u64) -> bool {
    if bytes as usize > size_of::<[u64; WORDS]>() {
        return false;
    }
    // SAFETY: the destination has so many writable bytes; the helper checks the source.
    let result =
        unsafe { helpers::bpf_probe_read_kernel(words.as_mut_ptr().cast(), bytes, address as *const c_void) };
    result == 0
}

/// A pointer to the task at an address, whose fields can be loaded without a helper: a load from an address that is not mapped
/// is 0. `task_type`: the BTF id of `task_struct`, a constant.
#[inline(always)]
pub(crate) fn task_at(address: u64, task_type: u32) -> *mut task_struct {
    // SAFETY: the loader puts a kernel function of this type in place of the number; the verifier checks the call.
    let cast: extern "C" fn(u64, u32) -> *mut task_struct = unsafe { transmute(RDONLY_CAST as usize) };
    cast(address, task_type)
}

/// A value of type `T` at `address + offset`, `None` when the kernel cannot read there.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64, offset: u32) -> Option<T> {
    // VERIFIER: a zeroed buffer would become a call to a memset subprogram.
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the destination is `size_of::<T>()` writable bytes; the helper checks the source.
    let result = unsafe {
        helpers::bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            (address + u64::from(offset)) as *const c_void,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the helper wrote every byte, and `T` consists of integers at each call.
    Some(unsafe { value.assume_init() })
}
