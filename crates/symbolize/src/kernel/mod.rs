//! Symbolizes kernel addresses: single addresses by a BPF program in the kernel, else with the whole `/proc/kallsyms`.

mod kallsyms;

use std::{
    io::{self, Read},
    sync::Arc,
};

use profiler_addresses::RuntimeAddress;
use profiler_processes::ProcFs;
use profiler_profile::Reason;

pub use self::kallsyms::KernelSymbols;
use self::kallsyms::function_name;

/// Formats addresses of the running kernel as symbols.
pub trait KernelNames: Send {
    /// Formats `address` like the `%pS` specifier of `printk`: `name+0x12/0x34 [module]`.
    ///
    /// # Errors
    /// Errors of the system call.
    fn name(&mut self, address: u64) -> io::Result<String>;
}

/// Creates [`KernelNames`] at the lookup of the first kernel address.
pub type LoadKernelNames = fn() -> io::Result<Box<dyn KernelNames>>;

/// Finds the functions at kernel addresses.
pub(crate) struct KernelSymbolizer {
    proc: Arc<ProcFs>,
    load_names: LoadKernelNames,
    /// Created at the first lookup; the inner `None` when it is not permitted or not available.
    names: Option<Option<Box<dyn KernelNames>>>,
    /// Read at the first lookup that `names` does not resolve.
    symbols: Option<Result<KernelSymbols, Reason>>,
}

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Name of the function.
    pub name: String,
    /// Name of the module, without brackets; `None` for the kernel itself.
    pub module: Option<String>,
    /// The bytes from the start of the function to the address.
    pub offset: u64,
}

impl KernelSymbolizer {
    pub(crate) fn new(proc: Arc<ProcFs>, load_names: LoadKernelNames) -> Self {
        Self { proc, load_names, names: None, symbols: None }
    }

    /// The function that contains an address.
    pub(crate) fn function(&mut self, address: RuntimeAddress) -> Result<KernelFunction, Reason> {
        self.query_kernel(address).unwrap_or_else(|| self.look_up(address))
    }

    /// Loads what resolves single addresses, which else happens at the first of them.
    pub(crate) fn load_names(&mut self) {
        self.names.get_or_insert_with(|| load(&self.proc, self.load_names));
    }

    /// `None` when `/proc/kallsyms` has to be read.
    fn query_kernel(&mut self, address: RuntimeAddress) -> Option<Result<KernelFunction, Reason>> {
        self.load_names();
        let names = self.names.as_mut()?.as_mut()?;
        match names.name(address.0) {
            Ok(symbol) if is_address(&symbol) => Some(Err(Reason::NoSymbolHere)),
            Ok(symbol) => parse_symbol(&symbol).map(Ok),
            Err(error) => {
                // Without the address: log lines can be shown to users from whom the kernel hides it.
                log::debug!("the kernel does not resolve an address: {error}");
                None
            }
        }
    }

    fn look_up(&mut self, address: RuntimeAddress) -> Result<KernelFunction, Reason> {
        let symbols = self.symbols.get_or_insert_with(|| {
            let file = self.proc.open_global("kallsyms").map_err(|_| Reason::KernelSymbolsNotReadable)?;
            KernelSymbols::read(file)
        });
        let symbols = symbols.as_ref().map_err(|reason| *reason)?;
        symbols.lookup(address).ok_or(Reason::NoSymbolHere)
    }
}

/// Creates [`KernelNames`] if `/proc/kallsyms` shows addresses. The BPF program would also resolve addresses for a user
/// from whom `kptr_restrict` hides them. A capture needs the whole `/proc/kallsyms` for its replay.
fn load(proc: &ProcFs, load_names: LoadKernelNames) -> Option<Box<dyn KernelNames>> {
    if proc.has_capture() || !proc.open_global("kallsyms").and_then(shows_addresses).unwrap_or(false) {
        return None;
    }
    load_names().inspect_err(|error| log::debug!("single kernel addresses cannot be resolved: {error}")).ok()
}

/// Whether the text of `/proc/kallsyms` shows addresses. Hidden addresses are zeros (`kptr_restrict`, proc_sys_kernel(5)).
///
/// # Errors
/// Errors of the reader.
pub fn shows_addresses(kallsyms: impl Read) -> io::Result<bool> {
    const MAX_BYTES: u64 = 64 << 10;
    const STEP_BYTES: usize = 4 << 10;
    let mut kallsyms = kallsyms.take(MAX_BYTES);
    let mut text = Vec::new();
    loop {
        let before = text.len();
        kallsyms.by_ref().take(STEP_BYTES as u64).read_to_end(&mut text)?;
        if has_addresses(&text) {
            return Ok(true);
        }
        if text.len() == before {
            return Ok(false);
        }
    }
}

fn has_addresses(kallsyms: &[u8]) -> bool {
    let mut lines = kallsyms.split(|byte| *byte == b'\n');
    // The addresses of per-CPU data begin at zero.
    lines.any(|line| line.iter().take_while(|byte| **byte != b' ').any(|digit| *digit != b'0'))
}

/// Whether the kernel printed a plain address: `/proc/kallsyms` has no symbol of it either (`__sprint_symbol`,
/// `kernel/kallsyms.c`). System call filters (seccomp) are such code.
fn is_address(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
}

/// Parses `name+0x12/0x34 [module]`. `None` when the symbol is not that of a function: `/proc/kallsyms` may contain another
/// symbol of the address.
fn parse_symbol(text: &str) -> Option<KernelFunction> {
    let (location, module) = match text.split_once(" [") {
        Some((location, module)) => (location, Some(module.strip_suffix(']')?)),
        None => (text, None),
    };
    let (symbol, offset_and_size) = location.rsplit_once("+0x")?;
    let (offset, _size) = offset_and_size.split_once('/')?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    Some(KernelFunction {
        name: function_name(symbol)?.to_owned(),
        module: module.map(str::to_owned),
        offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, module: Option<&str>, offset: u64) -> Option<KernelFunction> {
        Some(KernelFunction { name: name.to_owned(), module: module.map(str::to_owned), offset })
    }

    #[test]
    fn a_symbol_of_the_kernel_has_a_function_and_a_module() {
        assert_eq!(parse_symbol("schedule+0x12/0x34"), function("schedule", None, 0x12));
        assert_eq!(parse_symbol("xfs_read+0x0/0x34 [xfs]"), function("xfs_read", Some("xfs"), 0));
        assert_eq!(parse_symbol("__pfx_schedule+0x2/0x10"), function("schedule", None, 2));
        assert_eq!(parse_symbol("a+0xb+0x1/0x10"), function("a+0xb", None, 1));
    }

    #[test]
    fn symbols_that_are_not_functions_are_rejected() {
        for text in
            ["0xffffffffffffffff", "", "_stext+0x0/0x10", ".Llabel+0x0/0x10", "f", "f+0x1", "f+0x1/0x2 [x"]
        {
            assert_eq!(parse_symbol(text), None, "{text}");
        }
    }

    #[test]
    fn kallsyms_is_not_read_for_an_address_that_the_kernel_has_no_symbol_for() {
        struct Printed(&'static str);
        impl KernelNames for Printed {
            fn name(&mut self, _address: u64) -> io::Result<String> {
                Ok(self.0.to_owned())
            }
        }
        let function = |printed: &'static str| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("kallsyms"), "ffffffff81000000 T start\n").unwrap();
            let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
            let mut kernel = KernelSymbolizer::new(proc, || Err(io::ErrorKind::Unsupported.into()));
            kernel.names = Some(Some(Box::new(Printed(printed))));
            let found = kernel.function(RuntimeAddress(0xffff_ffff_8100_0010)).map(|found| found.name);
            (found, kernel.symbols.is_some())
        };
        assert_eq!(function("0xffffffff81000010"), (Err(Reason::NoSymbolHere), false));
        assert_eq!(function("schedule+0x10/0x20"), (Ok("schedule".to_owned()), false));
        assert_eq!(function("_stext+0x10/0x20"), (Ok("start".to_owned()), true));
    }

    #[test]
    fn addresses_in_a_capture_are_resolved_by_its_kallsyms() {
        let directory = tempfile::tempdir().unwrap();
        let kallsyms = "ffffffff81000000 T only_here\nffffffff81000100 T behind\n";
        std::fs::write(directory.path().join("kallsyms"), kallsyms).unwrap();
        let mut kernel =
            KernelSymbolizer::new(Arc::new(ProcFs::from_capture(directory.path().to_owned())), || {
                Err(io::ErrorKind::Unsupported.into())
            });
        assert_eq!(
            kernel.function(RuntimeAddress(0xffff_ffff_8100_0010)).ok(),
            function("only_here", None, 0x10)
        );
        let below = kernel.function(RuntimeAddress(0xffff_ffff_8000_0000));
        assert_eq!(below, Err(Reason::NoSymbolHere));
    }

    #[test]
    fn addresses_are_visible_when_one_is_not_zero() {
        let per_cpu = "0000000000000000 A fixed_percpu_data\n".repeat(500);
        let visible = |text: &str| shows_addresses(text.as_bytes()).unwrap();
        assert!(visible(&format!("{per_cpu}ffffffff81000000 T _text\n")));
        assert!(!visible(&format!("{per_cpu}0000000000000000 T _text\n")));
        assert!(!visible(""));
    }
}
