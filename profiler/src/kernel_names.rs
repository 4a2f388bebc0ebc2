//! Names of single kernel addresses for the symbolizer, by a BPF program.

use std::io;

use profiler_symbolize::kernel;

struct NamesByProgram(profiler_sampler::KernelNames);

impl kernel::KernelNames for NamesByProgram {
    fn name(&mut self, address: u64) -> io::Result<String> {
        self.0.name(address)
    }
}

/// Loads the program.
pub(crate) fn load() -> io::Result<Box<dyn kernel::KernelNames>> {
    Ok(Box::new(NamesByProgram(profiler_sampler::KernelNames::load()?)))
}
