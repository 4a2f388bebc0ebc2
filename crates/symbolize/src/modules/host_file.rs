//! Opens files of the host by their paths, for no process.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt, path::Path};

use profiler_addresses::{FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::Image;
use profiler_processes::FileVersion;
use profiler_profile::Reason;
use rustix::fs::OFlags;

use super::{ModuleFile, Modules};
use crate::{CodeKey, ModuleKey, module_code::ModuleCode};

impl Modules {
    /// The module of a file, which is opened and, if it is new, parsed.
    ///
    /// # Errors
    /// Those of opening it. That it is malformed is a reason.
    pub(crate) fn host_file(&mut self, path: &Path) -> io::Result<Result<ModuleKey, Reason>> {
        // A FIFO does not wait for its writer.
        let file =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let version = (ModuleFile::File(FileVersion::of(&file)?), None);
        if let Some(known) = self.used_module(&version) {
            return Ok(Ok(known));
        }
        let budget = self.budget_of(None).part();
        let parsed = budget.timed(|| {
            let image = Image::from_file(file).map_err(crate::reasons::parse_error_reason)?;
            ModuleCode::from_image(image, path, &budget)
        });
        Ok(parsed.unwrap_or(Err(Reason::OutOfTime)).map(|code| {
            let key = self.add(path.to_string_lossy().into(), code, None, budget);
            self.by_file.insert(version, key);
            key
        }))
    }

    /// Identifies the code at an offset of a file.
    ///
    /// # Errors
    /// The reason for which there is no code.
    pub(crate) fn code_at_offset(
        &mut self,
        module: ModuleKey,
        offset: FileOffset,
    ) -> Result<CodeKey, Reason> {
        let address = RuntimeAddress(offset.0);
        self.code_in(module, FileMapping { start: address, offset }, address)
    }
}
