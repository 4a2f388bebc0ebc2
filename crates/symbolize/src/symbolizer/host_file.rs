//! Looks up code of files of the host, for no process.

use std::{io, path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileOffset};
use profiler_profile::{FrameKind, Reason};

use super::Symbolizer;
use crate::{CodeKey, SymbolizedCode, debug_file::DebugFiles};

impl Symbolizer {
    /// The functions at offsets of a file, or for each the reason for which there is no symbol. A .NET assembly names its methods with
    /// the assemblies beside it.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn symbolize_file(&mut self, path: &Path, offsets: &[FileOffset]) -> io::Result<Vec<SymbolizedCode>> {
        let module = self.modules.host_file(path)?;
        let files =
            DebugFiles { target: None, tenant: None, shared: Arc::clone(&self.places), capture: None };
        let look_up = |offset: &FileOffset| {
            let code = module.and_then(|module| self.modules.code_at_offset(module, *offset));
            match code {
                Ok(CodeKey::Module(module, address)) => {
                    self.modules.symbolize(module, address, self.options, &files)
                }
                Ok(_) => unsymbolized(path, *offset, Reason::NoSymbols),
                Err(reason) => unsymbolized(path, *offset, reason),
            }
        };
        Ok(offsets.iter().map(look_up).collect())
    }
}

fn unsymbolized(path: &Path, offset: FileOffset, reason: Reason) -> SymbolizedCode {
    let module = Some((path.to_string_lossy().into(), Arc::default()));
    SymbolizedCode { module, ..SymbolizedCode::unsymbolized(FrameKind::Native, ElfAddress(offset.0), reason) }
}
