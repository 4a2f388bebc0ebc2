//! Lists all functions and methods of an image, for tests that compare them with a runtime.

use super::{AssemblyFiles, NameError, ReadyToRunModule, assemblies::OWN_ASSEMBLY, method_tables::MethodKey};
use crate::metadata::Table;

impl ReadyToRunModule {
    /// The address of each function of the image.
    ///
    /// # Errors
    /// [`NameError`] when the image has no precompiled code or is malformed.
    pub fn function_addresses(&mut self) -> Result<Vec<u32>, NameError> {
        let (code, image) = self.code()?;
        Ok(code.tables.function_starts(image)?)
    }

    /// The name of each method that has precompiled code.
    ///
    /// # Errors
    /// [`NameError`] of the first method that has no name.
    pub fn precompiled_methods(&mut self, files: &dyn AssemblyFiles) -> Result<Vec<String>, NameError> {
        let (code, image) = self.code()?;
        let methods: Vec<_> = code.tables.methods().collect();
        methods.into_iter().map(|method| code.namer(image, files).name(method)).collect()
    }

    /// The name of each method that the image defines, also those without precompiled code. Generic types have no type
    /// arguments.
    ///
    /// # Errors
    /// [`NameError`] of the first method that has no name.
    pub fn defined_methods(&mut self, files: &dyn AssemblyFiles) -> Result<Vec<String>, NameError> {
        let (code, image) = self.code()?;
        let rows = code.assemblies.get(OWN_ASSEMBLY, image, files)?.metadata.rows(Table::MethodDef);
        let method = |row| MethodKey::Definition { assembly: 0, row };
        (1..=rows).map(|row| code.namer(image, files).name(method(row))).collect()
    }

    /// The module version id of the image's own assembly.
    ///
    /// # Errors
    /// [`NameError`] when the metadata is malformed.
    pub fn module_version_id(&mut self, files: &dyn AssemblyFiles) -> Result<[u8; 16], NameError> {
        let (code, image) = self.code()?;
        let own = code.assemblies.get(OWN_ASSEMBLY, image, files)?;
        Ok(own.metadata.mvid(own.image)?)
    }

    /// The memory of the image's cached pages and of its method table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let methods = match &self.code {
            Some(Ok(code)) => code.tables.methods().count(),
            _ => 0,
        };
        self.image.cached_bytes() + methods * size_of::<(u32, MethodKey)>()
    }
}
