//! The distinct rules of a file, by index.

use indexmap::IndexSet;
use profiler_binary_reader::ParseError;
use profiler_common::unwind::Rule;

/// The distinct rules of one file. Real files have at most a thousand.
pub(crate) const MAX_FILE_RULES: usize = 4096;

/// The entries of the rule cache, a power of two.
const RULE_CACHE_ENTRIES: usize = 256;

/// The index of the rule for code without unwind information.
pub(crate) const UNKNOWN: u16 = 0;

/// The rules.
pub(crate) struct RuleSet {
    rules: IndexSet<Rule>,
    /// A direct-mapped cache of rules and their indexes. Most rows have one of a few dozen rules.
    cache: [(Rule, u16); RULE_CACHE_ENTRIES],
}

impl RuleSet {
    /// A set with the rule for code without unwind information.
    pub(crate) fn new() -> Self {
        Self {
            rules: IndexSet::from([Rule::default()]),
            cache: [(Rule::default(), UNKNOWN); RULE_CACHE_ENTRIES],
        }
    }

    /// The index of a rule, which is added if it is new.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] at the limit of a file.
    pub(crate) fn index_of(&mut self, rule: Rule) -> Result<u16, ParseError> {
        let cached = &mut self.cache[cache_slot(rule)];
        if cached.0 != rule {
            let (index, _) = self.rules.insert_full(rule);
            if index >= MAX_FILE_RULES {
                return Err(ParseError::TooLarge);
            }
            *cached = (rule, index as u16);
        }
        Ok(cached.1)
    }

    /// The rule at `index`, or the rule of code without unwind information if the set has fewer rules.
    pub(crate) fn get(&self, index: u16) -> Rule {
        self.rules.get_index(index.into()).copied().unwrap_or_default()
    }

    /// The rules by index.
    pub(crate) fn into_rules(self) -> Vec<Rule> {
        self.rules.into_iter().collect()
    }
}

/// The cache slot of a rule. Stack slots have 8 bytes, so that consecutive offsets have consecutive cache slots.
fn cache_slot(rule: Rule) -> usize {
    let slots = (rule.cfa_offset / 8 - i32::from(rule.frame_pointer_offset)) as usize;
    (slots ^ usize::from(rule.cfa) << 5 ^ usize::from(rule.frame_pointer) << 3) % RULE_CACHE_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_distinct_also_when_they_share_a_cache_slot() {
        let distance = i32::try_from(8 * RULE_CACHE_ENTRIES).unwrap();
        let rule = |far: bool| Rule { cfa: 1, cfa_offset: 8 + distance * i32::from(far), ..Rule::default() };
        let mut rules = RuleSet::new();
        for round in 0..1000 {
            let far = round % 2 == 0;
            let index = rules.index_of(rule(far)).unwrap();
            assert_eq!(index, if far { 1 } else { 2 });
        }
        assert_eq!(rules.into_rules(), [Rule::default(), rule(true), rule(false)]);
    }

    #[test]
    fn every_rule_has_a_cache_slot() {
        for cfa_offset in [i32::MIN, -1, 0, i32::MAX] {
            for frame_pointer_offset in [i16::MIN, -1, i16::MAX] {
                let rule = Rule { frame_pointer_offset, cfa: 255, cfa_offset, ..Rule::default() };
                assert!(cache_slot(rule) < RULE_CACHE_ENTRIES);
            }
        }
    }
}
