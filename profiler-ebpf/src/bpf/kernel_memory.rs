//! Reads fields of kernel structures at offsets from BTF.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::helpers::generated as helpers;

/// Reads an array of words at an address; `false` when the kernel cannot read there.
#[inline(always)]
pub(crate) fn read_words<const WORDS: usize>(words: &mut [u64; WORDS], address: u64) -> bool {
    // SAFETY: the destination is as many writable bytes; the helper checks the source.
    let result = unsafe {
        helpers::bpf_probe_read_kernel(
            words.as_mut_ptr().cast(),
            size_of::<[u64; WORDS]>() as u32,
            address as *const c_void,
        )
    };
    result == 0
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
