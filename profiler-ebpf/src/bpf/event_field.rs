//! Fields of tracepoints and probes: the value of an occurrence, and the conditions on which it counts.

use core::{ffi::c_void, mem::MaybeUninit};

use profiler_common::event::{Comparison, Field, FieldPlace};

use super::{config::get, kernel_memory::read, system_call, user_memory::read_user};

/// The value of this run; `None` where it does not meet all conditions, or a field cannot be read.
#[inline(always)]
pub(crate) fn value_of_run(context: *mut c_void) -> Option<u64> {
    // These distinguish a system call: its duration is taken at each of its exits, also where the last condition is not met.
    if !(meets::<0>(context, 0)? && meets::<1>(context, 0)?) {
        return None;
    }
    let duration_ns = if get!(event.needs_duration) == 0 {
        0
    } else {
        system_call::duration_ns(context, get!(event.index))?
    };
    if !meets::<2>(context, duration_ns)? {
        return None;
    }
    let occurrences = get!(event.occurrences_per_run);
    let weight = get!(event.weight);
    if weight.bytes == 0 {
        return Some(occurrences);
    }
    let number = read_field(context, &weight, duration_ns)?;
    // A negative number is an error code, and no amount.
    Some(if number < 0 { 0 } else { number as u64 })
}

/// Whether an occurrence meets the condition with this index.
#[inline(always)]
fn meets<const INDEX: usize>(context: *mut c_void, duration_ns: u64) -> Option<bool> {
    let comparison = get!(event.conditions[INDEX].comparison);
    if comparison == 0 {
        return Some(true);
    }
    let field = get!(event.conditions[INDEX].field);
    let (found, number) = (read_field(context, &field, duration_ns)?, get!(event.conditions[INDEX].number));
    Some(if comparison == Comparison::Equal as u32 {
        found == number
    } else if comparison == Comparison::NotEqual as u32 {
        found != number
    } else if comparison == Comparison::Less as u32 {
        found < number
    } else if comparison == Comparison::AtMost as u32 {
        found <= number
    } else if comparison == Comparison::Greater as u32 {
        found > number
    } else {
        found >= number
    })
}

/// Reads a field. `duration_ns`: of the system call that returns.
///
/// VERIFIER: the context is read by a helper. A load at an offset that is a constant of the loader would be one from a changed
/// pointer to the context, which is refused.
#[inline(always)]
fn read_field(context: *mut c_void, field: &Field, duration_ns: u64) -> Option<i64> {
    if field.place == FieldPlace::Duration as u32 {
        return Some(duration_ns as i64);
    }
    if field.place == FieldPlace::Constant as u32 {
        return Some(i64::from(field.offset));
    }
    let argument_at = context as u64 + u64::from(field.context_offset);
    if field.place == FieldPlace::Argument as u32 {
        return read_number(argument_at, field);
    }
    let base: u64 = read(argument_at, 0)?;
    read_number(base.wrapping_add_signed(i64::from(field.offset)), field)
}

/// Reads a number of the field's size, extended to 64 bits by its sign.
#[inline(always)]
fn read_number(address: u64, field: &Field) -> Option<i64> {
    let is_signed = field.is_signed != 0;
    let place = field.place;
    Some(match field.bytes {
        1 if is_signed => read_at::<i8>(address, place)? as i64,
        1 => read_at::<u8>(address, place)? as i64,
        2 if is_signed => read_at::<i16>(address, place)? as i64,
        2 => read_at::<u16>(address, place)? as i64,
        4 if is_signed => read_at::<i32>(address, place)? as i64,
        4 => read_at::<u32>(address, place)? as i64,
        _ => read_at::<i64>(address, place)?,
    })
}

/// Reads memory of the process or of the kernel.
#[inline(always)]
fn read_at<T: Copy>(address: u64, place: u32) -> Option<T> {
    if place != FieldPlace::UserMemory as u32 {
        return read(address, 0);
    }
    let mut value = MaybeUninit::<T>::uninit();
    if !read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, address) {
        return None;
    }
    // SAFETY: the helper wrote every byte, and `T` is an integer at each call.
    Some(unsafe { value.assume_init() })
}
