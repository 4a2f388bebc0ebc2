//! Names of kernel code: the kernel is asked for those that are needed, and its whole list is read where it does not
//! answer.

use std::{
    io::{self, Read},
    sync::Arc,
};

use super::kernel::{KernelSymbols, function_name};
use profiler_addresses::RuntimeAddress;
use profiler_processes::ProcFs;
use profiler_profile::Reason;

/// Names single addresses of the running kernel.
pub trait KernelNames: Send {
    /// The name of the code at `address`, as `%pS` of the kernel's messages prints it: `name+0x12/0x34 [module]`.
    ///
    /// # Errors
    /// Errors of the system call.
    fn name(&self, address: u64) -> io::Result<String>;
}

/// Loads [`KernelNames`] when the first address of the kernel is named.
pub type LoadKernelNames = fn() -> io::Result<Box<dyn KernelNames>>;

/// Finds names of kernel code.
pub struct KernelCode {
    proc: Arc<ProcFs>,
    load_names: LoadKernelNames,
    /// Loaded at the first look-up; `None` where the kernel is not asked.
    asked: Option<Option<Box<dyn KernelNames>>>,
    /// Read at the first question that nobody else answers.
    listed: Option<Result<KernelSymbols, Reason>>,
}

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    /// Without brackets; `None` for the kernel itself.
    pub module: Option<String>,
}

impl KernelCode {
    pub fn new(proc: Arc<ProcFs>, load_names: LoadKernelNames) -> Self {
        Self { proc, load_names, asked: None, listed: None }
    }

    /// The function that the code at an address belongs to.
    pub fn function(&mut self, address: RuntimeAddress) -> Result<Found, Reason> {
        match self.ask(address) {
            Some(found) => Ok(found),
            None => self.look_up(address),
        }
    }

    /// `None` where the list has to tell.
    fn ask(&mut self, address: RuntimeAddress) -> Option<Found> {
        let names = self.asked.get_or_insert_with(|| load(&self.proc, self.load_names)).as_ref()?;
        match names.name(address.0) {
            Ok(answer) => parse(&answer),
            Err(error) => {
                log::debug!("the kernel does not name {:#x}: {error}", address.0);
                None
            }
        }
    }

    fn look_up(&mut self, address: RuntimeAddress) -> Result<Found, Reason> {
        let symbols = self.listed.get_or_insert_with(|| {
            let file = self.proc.open_global("kallsyms").map_err(|_| Reason::KernelSymbolsNotReadable)?;
            KernelSymbols::read(file)
        });
        let symbols = symbols.as_ref().map_err(|reason| *reason)?;
        let function = symbols.lookup(address).ok_or(Reason::NoSymbolHere)?;
        Ok(Found { name: function.name.to_owned(), module: function.module.map(str::to_owned) })
    }
}

/// What asks the kernel. It would answer those too from whom it hides its addresses: they are not to know more than
/// its list shows them. A capture needs the list, for whoever replays it.
fn load(proc: &ProcFs, load_names: LoadKernelNames) -> Option<Box<dyn KernelNames>> {
    if proc.serves_capture() || !proc.open_global("kallsyms").and_then(shows_addresses).unwrap_or(false) {
        return None;
    }
    load_names().inspect_err(|error| log::debug!("the kernel is not asked for names: {error}")).ok()
}

/// Whether the text of `/proc/kallsyms` shows addresses: where they are hidden, they are zeros.
pub fn shows_addresses(kallsyms: impl Read) -> io::Result<bool> {
    const ENOUGH_BYTES: u64 = 64 << 10;
    const STEP_BYTES: usize = 4 << 10;
    let mut kallsyms = kallsyms.take(ENOUGH_BYTES);
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
    // Symbols of per-CPU data really are at zero.
    lines.any(|line| line.iter().take_while(|byte| **byte != b' ').any(|digit| *digit != b'0'))
}

/// Reads `name+0x12/0x34 [module]`. An address without a symbol is printed as it is, and of several names of an
/// address the first, whatever it stands for: then the list knows more.
fn parse(answer: &str) -> Option<Found> {
    let (place, module) = match answer.split_once(" [") {
        Some((place, module)) => (place, Some(module.strip_suffix(']')?)),
        None => (answer, None),
    };
    let (symbol, _offset_and_size) = place.rsplit_once("+0x")?;
    Some(Found { name: function_name(symbol)?.to_owned(), module: module.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, module: Option<&str>) -> Option<Found> {
        Some(Found { name: name.to_owned(), module: module.map(str::to_owned) })
    }

    #[test]
    fn an_answer_is_a_function_and_its_module() {
        assert_eq!(parse("schedule+0x12/0x34"), found("schedule", None));
        assert_eq!(parse("xfs_read+0x0/0x34 [xfs]"), found("xfs_read", Some("xfs")));
        assert_eq!(parse("__pfx_schedule+0x2/0x10"), found("schedule", None));
        assert_eq!(parse("a+0xb+0x1/0x10"), found("a+0xb", None));
    }

    #[test]
    fn what_is_no_function_is_left_to_the_list() {
        for answer in ["0xffffffffffffffff", "", "_stext+0x0/0x10", ".Llabel+0x0/0x10", "f", "f+0x1/0x2 [x"] {
            assert_eq!(parse(answer), None, "{answer}");
        }
    }

    #[test]
    fn a_capture_is_named_by_its_own_list() {
        let directory = tempfile::tempdir().unwrap();
        let list = "ffffffff81000000 T only_here\nffffffff81000100 T behind\n";
        std::fs::write(directory.path().join("kallsyms"), list).unwrap();
        let mut code = KernelCode::new(Arc::new(ProcFs::of_capture(directory.path().to_owned())), || {
            Err(io::ErrorKind::Unsupported.into())
        });
        assert_eq!(code.function(RuntimeAddress(0xffff_ffff_8100_0010)).ok(), found("only_here", None));
        let below = code.function(RuntimeAddress(0xffff_ffff_8000_0000));
        assert_eq!(below, Err(Reason::NoSymbolHere));
    }

    #[test]
    fn addresses_are_shown_when_one_is_not_zero() {
        let per_cpu = "0000000000000000 A fixed_percpu_data\n".repeat(500);
        let shown = |text: &str| shows_addresses(text.as_bytes()).unwrap();
        assert!(shown(&format!("{per_cpu}ffffffff81000000 T _text\n")));
        assert!(!shown(&format!("{per_cpu}0000000000000000 T _text\n")));
        assert!(!shown(""));
    }
}
