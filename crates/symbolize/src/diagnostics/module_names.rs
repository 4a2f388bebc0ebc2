//! Keeps the names of a runtime's modules within limits on their number and their bytes.

use std::collections::HashMap;

/// Modules. The largest programs have a few thousand.
const MAX_MODULES: usize = 1 << 15;

/// Bytes of all names. Most names have 20 to 60 bytes.
const MAX_BYTES: usize = 4 << 20;

/// Length of the longest name that is kept.
const MAX_NAME_BYTES: usize = 1 << 10;

/// Memory of a module in the hash table, beside its name.
pub(super) const MODULE_BYTES: usize = 2 * size_of::<(u64, Box<str>)>();

/// The names of assemblies by module id.
#[derive(Debug, Default)]
pub(super) struct ModuleNames {
    names: HashMap<u64, Box<str>>,
    name_bytes: usize,
}

impl ModuleNames {
    /// Adds or renames a module, unless its name is empty or a limit is reached.
    pub(super) fn insert(&mut self, module_id: u64, name: &str) {
        let known = self.names.get(&module_id);
        let name_bytes = self.name_bytes - known.map_or(0, |known| known.len()) + name.len();
        let is_within_limits = name.len() <= MAX_NAME_BYTES
            && name_bytes <= MAX_BYTES
            && (known.is_some() || self.names.len() < MAX_MODULES);
        if is_within_limits && !name.is_empty() {
            self.name_bytes = name_bytes;
            self.names.insert(module_id, name.into());
        }
    }

    /// Adds or renames the modules of a later report.
    pub(super) fn insert_all(&mut self, later: &Self) {
        later.names.iter().for_each(|(module_id, name)| self.insert(*module_id, name));
    }

    /// The name of a module.
    pub(super) fn get(&self, module_id: u64) -> Option<&str> {
        self.names.get(&module_id).map(|name| &**name)
    }

    /// The memory of the names.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names.len() * MODULE_BYTES + self.name_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_its_last_name() {
        let mut modules = ModuleNames::default();
        modules.insert(1, "First");
        modules.insert(1, "Longer");
        modules.insert(2, "");
        modules.insert(3, &"x".repeat(MAX_NAME_BYTES + 1));
        assert_eq!([1, 2, 3].map(|id| modules.get(id)), [Some("Longer"), None, None]);
        let mut later = ModuleNames::default();
        later.insert(1, "Last");
        modules.insert_all(&later);
        assert_eq!(modules.get(1), Some("Last"));
        assert_eq!(modules.memory_bytes(), MODULE_BYTES + "Last".len());
    }

    #[test]
    fn endless_modules_of_many_reports_are_bounded() {
        for name_bytes in [1, MAX_NAME_BYTES] {
            let mut modules = ModuleNames::default();
            for report in 0..3 {
                let mut later = ModuleNames::default();
                for module_id in 0..MAX_MODULES as u64 {
                    later.insert((report << 32) + module_id, &"x".repeat(name_bytes));
                }
                modules.insert_all(&later);
            }
            assert!(modules.names.len() <= MAX_MODULES && modules.name_bytes <= MAX_BYTES);
            assert!(modules.memory_bytes() <= MAX_MODULES * MODULE_BYTES + MAX_BYTES);
        }
    }
}
