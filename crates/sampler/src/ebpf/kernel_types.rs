//! The types of the running kernel, and what they say about it.

use std::cell::OnceCell;

use super::btf::Btf;
use crate::{
    error::{Error, ErrorKind, Result},
    sys::kernel_file::KernelFile,
};

/// What cannot be done without BTF.
pub(super) const WAITING_THREADS: &str = "waiting threads can only be sampled";
pub(super) const OFF_CPU: &str = "off-CPU time can only be measured";

/// The kernel's BTF, which is read once, when it is needed first.
#[derive(Debug, Default)]
pub(crate) struct KernelTypes {
    btf: OnceCell<Option<Btf>>,
}

impl KernelTypes {
    /// The types; `None` where the kernel has none.
    pub(crate) fn btf(&self) -> Option<&Btf> {
        self.btf.get_or_init(|| Btf::parse(KernelFile::open(Btf::PATH).ok()?)).as_ref()
    }

    /// The types, for what cannot be done without them.
    ///
    /// # Errors
    /// The kernel has none.
    pub(super) fn required_for(&self, what: &str) -> Result<&Btf> {
        self.btf().ok_or_else(|| {
            let message = format!("{what} on a kernel with BTF, and this one has no `{}`", Btf::PATH);
            Error::new(ErrorKind::Unsupported, message)
        })
    }

    /// The BTF id of the task iterator's function (`DEFINE_BPF_ITER_FUNC(task, ...)`, `kernel/bpf/task_iter.c`).
    ///
    /// # Errors
    /// The kernel has no BTF or no such iterator.
    pub(super) fn task_iterator(&self) -> Result<u32> {
        self.required_for(WAITING_THREADS)?.function_id("bpf_iter_task").ok_or_else(|| {
            let message =
                "waiting threads can be sampled from Linux 5.10 on: this kernel has no task iterator";
            Error::new(ErrorKind::Unsupported, message)
        })
    }

    /// Whether a program of the task iterator can copy the stacks of tasks: from Linux 5.18 on.
    pub(super) fn copies_stacks_of_tasks(&self) -> bool {
        self.btf().is_some_and(|btf| btf.enumerator("bpf_func_id", "BPF_FUNC_copy_from_user_task").is_some())
    }

    /// The BTF id of a tracepoint's arguments (`btf_trace_` types, `include/trace/bpf_probe.h`).
    ///
    /// # Errors
    /// The kernel has no BTF, or no such tracepoint.
    pub(super) fn tracepoint(&self, name: &str) -> Result<u32> {
        self.required_for(OFF_CPU)?.typedef_id(&format!("btf_trace_{name}")).ok_or_else(|| {
            let message =
                format!("off-CPU time cannot be measured: this kernel lacks the tracepoint `{name}`");
            Error::new(ErrorKind::Unsupported, message)
        })
    }
}
