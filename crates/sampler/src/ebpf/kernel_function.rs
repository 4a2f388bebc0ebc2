//! Calls of kernel functions (`Documentation/bpf/kfuncs.rst`), which the object has as calls of helpers with numbers of no
//! helper.

/// Puts the id of a kernel function in place of the number of a helper. Where the kernel lacks the function, the call stays and is
/// dead code.
pub(super) fn call(object: &mut aya_obj::Object, helper: i32, function_id: u32) {
    const CALL: u8 = 0x85;
    /// `BPF_PSEUDO_KFUNC_CALL` of `include/uapi/linux/bpf.h`.
    const KERNEL_FUNCTION: u8 = 2;
    let Ok(function_id @ 1..) = i32::try_from(function_id) else { return };
    for function in object.functions.values_mut() {
        let calls = function.instructions.iter_mut();
        for call in calls.filter(|call| call.code == CALL && call.src_reg() == 0 && call.imm == helper) {
            call.set_src_reg(KERNEL_FUNCTION);
            call.imm = function_id;
        }
    }
}
