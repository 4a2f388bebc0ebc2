//! Keeps the names of a runtime's modules, and which of them can be unloaded, within limits on their number and their bytes.

use std::collections::{HashMap, HashSet};

/// Modules. The largest programs have a few thousand.
const MAX_MODULES: usize = 1 << 15;

/// Bytes of all names. Most names have 20 to 60 bytes.
const MAX_BYTES: usize = 4 << 20;

/// Length of the longest name that is kept.
const MAX_NAME_BYTES: usize = 1 << 10;

/// Memory of a module in the hash table, beside its name.
pub(super) const MODULE_BYTES: usize = 2 * size_of::<(u64, Box<str>)>() + ASSEMBLY_BYTES;

/// Memory of the assembly of a module, or of a collectible assembly, in the hash tables.
const ASSEMBLY_BYTES: usize = 2 * size_of::<(u64, u64)>();

/// The names of assemblies by module id.
#[derive(Debug, Default)]
pub(super) struct ModuleNames {
    names: HashMap<u64, Box<str>>,
    name_bytes: usize,
    /// The assembly of each named module.
    assemblies: HashMap<u64, u64>,
    /// Assemblies that are unloaded when nothing refers to them.
    collectible: HashSet<u64>,
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

    /// Sets the assembly of a module that has a name.
    pub(super) fn set_assembly(&mut self, module_id: u64, assembly_id: u64) {
        if self.names.contains_key(&module_id) {
            self.assemblies.insert(module_id, assembly_id);
        }
    }

    /// Adds an assembly that can be unloaded, unless the limit is reached.
    pub(super) fn add_collectible(&mut self, assembly_id: u64) {
        if self.collectible.len() < MAX_MODULES {
            self.collectible.insert(assembly_id);
        }
    }

    /// Whether the module can be unloaded.
    pub(super) fn is_collectible(&self, module_id: u64) -> bool {
        self.assemblies.get(&module_id).is_some_and(|assembly| self.collectible.contains(assembly))
    }

    /// Adds or renames the modules of a later report.
    pub(super) fn insert_all(&mut self, later: &Self) {
        later.names.iter().for_each(|(module_id, name)| self.insert(*module_id, name));
        later.assemblies.iter().for_each(|(module, assembly)| self.set_assembly(*module, *assembly));
        later.collectible.iter().for_each(|assembly| self.add_collectible(*assembly));
    }

    /// The name of a module.
    pub(super) fn get(&self, module_id: u64) -> Option<&str> {
        self.names.get(&module_id).map(|name| &**name)
    }

    /// The memory of the names.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names.len() * MODULE_BYTES + self.collectible.len() * ASSEMBLY_BYTES + self.name_bytes
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
    fn a_module_of_a_collectible_assembly_is_collectible() {
        let mut modules = ModuleNames::default();
        for (module, assembly) in [(1, 11), (2, 12)] {
            modules.insert(module, "name");
            modules.set_assembly(module, assembly);
        }
        let mut later = ModuleNames::default();
        later.add_collectible(12);
        modules.insert_all(&later);
        assert_eq!([1, 2, 3].map(|module| modules.is_collectible(module)), [false, true, false]);
    }

    #[test]
    fn endless_modules_of_many_reports_are_bounded() {
        for name_bytes in [1, MAX_NAME_BYTES] {
            let mut modules = ModuleNames::default();
            for report in 0..3 {
                let mut later = ModuleNames::default();
                for module_id in 0..MAX_MODULES as u64 {
                    let id = (report << 32) + module_id;
                    later.insert(id, &"x".repeat(name_bytes));
                    later.set_assembly(id, id);
                    later.add_collectible(id);
                }
                modules.insert_all(&later);
            }
            assert!(modules.names.len() <= MAX_MODULES && modules.name_bytes <= MAX_BYTES);
            assert!(modules.assemblies.len() <= MAX_MODULES && modules.collectible.len() <= MAX_MODULES);
            assert!(modules.memory_bytes() <= MAX_MODULES * (MODULE_BYTES + ASSEMBLY_BYTES) + MAX_BYTES);
        }
    }
}
