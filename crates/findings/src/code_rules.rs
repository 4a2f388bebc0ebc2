//! Whose code a frame is: names of frameworks, runtimes and libraries, apart from those of the application. Data alone.

/// Assemblies of frameworks: code that the user of the profiler does not write.
pub(crate) const FRAMEWORKS: &[&str] =
    &["System.*", "System", "Microsoft.*", "mscorlib", "netstandard", "WindowsBase"];

/// Classes of Java's library, in names without arguments as JVMs and agents spell them: `void java.lang.Thread.run`.
pub(crate) const JAVA_FRAMEWORKS: &[&str] =
    &["java.*", "* java.*", "jdk.*", "* jdk.*", "sun.*", "* sun.*", "Ljava/*", "Ljdk/*", "Lsun/*"];

/// Code of virtual machines beside that of methods: stubs, adapters and interpreters, as perf maps spell it.
pub(crate) const STUBS: &[&str] = &[
    "Interpreter",
    "StubRoutines*",
    "*_Java",
    "*RuntimeStub*",
    "I2C/C2I adapters*",
    "vtable stub*",
    "itable stub*",
    "call_stub",
    "*node:internal/*",
    "*node:*",
    "Builtin:*",
    "BytecodeHandler:*",
];

/// Functions of servers and libraries that take locks or wait for their callers.
pub(crate) const PLUMBING: &[&str] = &[
    "LWLockAcquire*",
    "LockAcquire*",
    "LockTuple",
    "PGSemaphoreLock",
    "ProcSleep",
    "WaitEventSetWait",
    "WaitLatch*",
    "XactLockTableWait",
    "MDL_*",
    "Interruptible_wait::*",
    "ap_core_input_filter",
    "ap_get_brigade",
    "ap_rgetline*",
    "apr_*",
    // Pools of connections of Java and Python.
    "*com.zaxxer.hikari.*",
    "Lcom/zaxxer/hikari/*",
    "*org.apache.commons.pool2.*",
    "*org.apache.http.pool.*",
    "py::*/threading.py",
    "py::*/queue.py",
    "py::*/sqlalchemy/*",
    "py::*/redis/connection.py",
    "py::*/urllib3/*",
    "py::*/psycopg_pool/*",
    // Locks of Rust, as demanglers write them.
    "parking_lot::*",
    "<parking_lot::*",
    "parking_lot_core::*",
    "<parking_lot_core::*",
    "lock_api::*",
    "<lock_api::*",
];

/// Modules of libc.
pub(crate) const LIBC_MODULES: &[&str] = &["libc.so*", "libc-*", "libpthread*", "ld-*", "[vdso]"];

/// Modules of runtimes and of libraries of languages.
pub(crate) const RUNTIME_MODULES: &[&str] = &[
    "libstdc++*",
    "libgcc_s*",
    "libcoreclr.so",
    "libclr*.so",
    "libhost*.so",
    "libSystem.*",
    "libjvm.so",
    "dotnet",
    "node",
    "python3*",
    "libpython3*",
    "*.cpython-3*",
    "beam.smp",
    "php-fpm*",
    "libphp*",
    "libaprutil-1*",
    "libapr-1*",
];

/// Functions that are not of the application, in whatever module they are: those that start programs and threads, and names that
/// C reserves for the implementation (ISO C11, 7.1.3) or POSIX for threads, which a statically linked program contains:
/// `__libc_pread64`. Of musl also `sccp` (src/thread/__syscall_cp.c).
pub(crate) const RUNTIME_FUNCTIONS: &[&str] =
    &["_start", "start_thread", "start", "clone*", "__*", "libc_start_main_stage2", "sccp", "pthread_*"];

/// Functions of libc that make system calls, and have names that functions of the application can have as well.
pub(crate) const SYSTEM_CALL_WRAPPERS: &[&str] = &[
    "syscall",
    "sem_wait",
    "sem_timedwait",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "read",
    "readv",
    "write",
    "writev",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendto",
    "sendmsg",
    "connect",
    "accept",
    "accept4",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "fsync",
    "fdatasync",
    "wait4",
    "waitpid",
    "waitid",
    "system",
    "popen",
    "pclose",
    "getaddrinfo",
];

/// Functions of Go's standard library.
pub(crate) const GO_LIBRARY: &[&str] = &[
    "runtime.*",
    "runtime/*",
    "internal/*",
    "syscall.*",
    "os.*",
    "os/exec.*",
    "io.*",
    "bufio.*",
    "sync.*",
    "time.*",
    "net.*",
    "net/*",
    "crypto/*",
    "database/sql.*",
];

/// Functions of Rust's standard library, which every program contains, as demanglers write them.
pub(crate) const RUST_LIBRARY: &[&str] = &[
    "std::panic*",
    "std::rt::*",
    "std::sync::*",
    "std::sys::*",
    "std::thread::*",
    "core::ops::function::*",
    "<std::*",
    "<core::*",
    "<alloc::*",
];

/// Parts and copies of functions that compilers of C name after them: `io.part.0` is not `part` of Go's package `io`.
pub(crate) const CLONES: &[&str] =
    &["*.part.*", "*.isra.*", "*.constprop.*", "*.cold", "*.cold.*", "*.lto_priv.*", "*.llvm.*"];
