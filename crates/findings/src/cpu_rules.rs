//! The rules by which a share of CPU time is a finding: data alone.
//!
//! Patterns are those of `rules.rs`.

use profiler_profile::FindingKind;

/// A rule over samples on a CPU.
pub(crate) struct CpuRule {
    pub(crate) kind: FindingKind,
    /// A sample matches if one of its functions does, ...
    pub(crate) functions: &'static [&'static str],
    /// ... the module of one of its functions, ...
    pub(crate) modules: &'static [&'static str],
    /// ... or its thread, ...
    pub(crate) threads: &'static [&'static str],
    /// ... unless one of these functions is in the stack.
    pub(crate) except: &'static [&'static str],
    /// The least share of samples for a finding.
    pub(crate) min_percent: f64,
    /// What the CPUs do.
    pub(crate) activity: &'static str,
    pub(crate) remedy: &'static str,
}

pub(crate) const CPU_RULES: &[CpuRule] = &[
    // A server that has started compiles in less than a twentieth of its CPU time.
    CpuRule {
        kind: FindingKind::Compilation,
        functions: &["JSJitCompiler*"],
        modules: &["libclrjit.so"],
        threads: &[],
        except: &[],
        min_percent: 15.0,
        activity: "compiles methods (JIT)",
        remedy: "publish with ReadyToRun, keep tiered compilation on, and send load after the start-up",
    },
    // As above, in runtimes without ReadyToRun: Java and V8.
    CpuRule {
        kind: FindingKind::Compilation,
        functions: &["CompileBroker::*", "v8::internal::*CompilationJob*"],
        modules: &[],
        threads: &["C1 CompilerThre", "C2 CompilerThre"],
        except: &[],
        min_percent: 15.0,
        activity: "compiles functions (JIT)",
        remedy: "send load after the start-up, when they are compiled",
    },
    // Allocation-heavy programs spend up to a tenth of their CPU time in a tuned collector.
    CpuRule {
        kind: FindingKind::GarbageCollection,
        functions: &[
            "*gc_heap::*",
            "GCInterface_Collect*",
            "System.GC.Collect*",
            "runtime.gcBgMarkWorker*",
            "runtime.gcAssist*",
            "v8::internal::Heap::CollectGarbage*",
            "v8::internal::ScavengerCollector::*",
            "v8::internal::MarkCompactCollector::*",
        ],
        modules: &["libclrgc.so", "libclrgcexp.so"],
        threads: &[".NET Server GC", ".NET BGC", "GC Thread#*", "G1 *", "ZWorker*"],
        except: &[],
        min_percent: 20.0,
        activity: "collects garbage",
        remedy: "allocate less, and keep fewer objects alive",
    },
    // Locks spin for microseconds before they block; the share of that is small unless the lock is contended.
    CpuRule {
        kind: FindingKind::Spinning,
        functions: &[
            "*sched_yield",
            "pthread_spin_lock",
            "native_queued_spin_lock_slowpath",
            "System.Threading.SpinWait.*",
            "System.Threading.Thread.SpinWait*",
            "ThreadNative_SpinWait",
        ],
        modules: &[],
        threads: &[],
        // An idle worker of the pool spins before it sleeps.
        except: &["System.Threading.LowLevelLifoSemaphore.*", "CLRLifoSemaphore::*"],
        min_percent: 20.0,
        activity: "spins until another thread proceeds",
        remedy: "block in place of spinning, or hold the lock for a shorter time",
    },
    // Programs that reuse their memory have few page faults once they have started.
    CpuRule {
        kind: FindingKind::PageFaults,
        functions: &["asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "el0_da", "el0_ia"],
        modules: &[],
        threads: &[],
        except: &[],
        min_percent: 20.0,
        activity: "handles page faults",
        remedy: "reuse memory in place of returning it to the kernel, or use huge pages",
    },
    // Network interrupts of a busy server take about a tenth. Packets on the loopback device have none.
    CpuRule {
        kind: FindingKind::Interrupts,
        functions: &[
            "asm_common_interrupt",
            "common_interrupt",
            "asm_sysvec_*",
            "el0_interrupt",
            "el1_interrupt",
        ],
        modules: &[],
        threads: &[],
        except: &[],
        min_percent: 20.0,
        activity: "handles interrupts",
        remedy: "distribute the interrupts of devices over more CPUs, or have them coalesced",
    },
];
