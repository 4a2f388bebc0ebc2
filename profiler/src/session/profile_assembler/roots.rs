//! Functions at which stacks begin: those with which the C library, a runtime or the kernel starts a process or a thread.

/// Functions of C libraries and runtimes whose names no other function has.
const STARTS_OF_THREADS: [&str; 20] = [
    // The entry point of a program (System V ABI), and of glibc and musl.
    "_start",
    "_start_c",
    "_dlstart",
    "__libc_start_call_main",
    "__libc_start_main",
    "__libc_start_main_impl",
    "libc_start_main_stage2",
    // Threads of glibc and musl.
    "start_thread",
    "clone3",
    "__clone",
    "__clone3",
    // Contexts of makecontext(3) in glibc.
    "__start_context",
    // Go: programs, threads, and goroutines (src/runtime/asm_amd64.s).
    "_rt0_amd64",
    "_rt0_amd64_linux",
    "runtime.rt0_go",
    "runtime.rt0_go.abi0",
    "runtime.mstart",
    "runtime.mstart.abi0",
    "runtime.goexit",
    "runtime.goexit.abi0",
];

/// Functions of C libraries whose names are also those of other functions: the start of a thread in musl, and the system call.
const STARTS_IN_C_LIBRARY: [&str; 2] = ["start", "clone"];

const STARTS_OF_KERNEL_THREADS: [&str; 3] = ["ret_from_fork_asm", "ret_from_fork", "kthread"];

/// Whether a function starts processes or threads. `has_null_caller`: its return address or frame pointer is 0, as in a program
/// that is linked with its C library.
pub(super) fn starts_threads(name: &str, module_path: &str, has_null_caller: bool) -> bool {
    STARTS_OF_THREADS.contains(&name)
        || STARTS_IN_C_LIBRARY.contains(&name) && (has_null_caller || is_c_library(module_path))
}

/// Whether a function of the kernel starts its threads.
pub(super) fn starts_kernel_threads(name: &str) -> bool {
    STARTS_OF_KERNEL_THREADS.contains(&name)
}

/// Whether a file has the name of a C library: `libc.so.6`, `libc-2.31.so`, `libpthread.so.0`, `ld-musl-x86_64.so.1`,
/// `libc.musl-x86_64.so.1`.
fn is_c_library(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    ["libc.", "libc-", "libpthread", "ld-musl-"].iter().any(|prefix| file.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_a_program_with_the_name_of_one_of_the_c_library_starts_no_thread() {
        for (name, module, expected) in [
            ("start", "/lib/ld-musl-x86_64.so.1", true),
            ("clone", "/usr/lib/x86_64-linux-gnu/libc.so.6", true),
            ("start", "/app/server", false),
            ("clone", "/usr/lib/libcairo.so.2", false),
            ("_start", "/app/server", true),
            ("runtime.goexit.abi0", "/app/server", true),
            ("main", "/app/server", false),
        ] {
            assert_eq!(starts_threads(name, module, false), expected, "{name} in {module}");
        }
        assert!(starts_threads("clone", "/app/static", true) && !starts_threads("main", "/app/static", true));
    }
}
