//! Limits how often a process is searched for what its runtime has.

/// Searches of a process: one each time its mappings change until something is found, and one each time the module of the
/// runtime was closed and opened again.
const MAX_SEARCHES: u32 = 32;

/// The searches of one kind in a process.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    has_ended: bool,
    searches: u32,
    /// The generation of the mappings at the last search.
    generation: Option<usize>,
}

impl Attempts {
    /// Whether to search a process whose mappings have this generation. Counts the search.
    pub(crate) fn begin(&mut self, generation: usize) -> bool {
        let is_due = !self.has_ended && self.searches < MAX_SEARCHES && self.generation != Some(generation);
        if is_due {
            self.searches += 1;
            self.generation = Some(generation);
        }
        is_due
    }

    /// Ends the searches, as they have found something.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Searches again, even if the mappings have not changed.
    pub(crate) fn repeat(&mut self) {
        (self.has_ended, self.generation) = (false, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_searched_until_something_is_found() {
        let mut attempts = Attempts::default();
        assert_eq!([1, 1, 2].map(|generation| attempts.begin(generation)), [true, false, true]);
        attempts.end();
        assert!(!attempts.begin(3));
        attempts.repeat();
        assert_eq!([3, 3].map(|generation| attempts.begin(generation)), [true, false]);
    }

    #[test]
    fn a_process_that_changes_its_mappings_without_end_is_searched_a_limited_number_of_times() {
        let mut attempts = Attempts::default();
        let searches = (0..1000).filter(|generation| attempts.begin(*generation)).count();
        assert_eq!(searches, MAX_SEARCHES as usize);
        attempts.repeat();
        assert!(!attempts.begin(0));
    }
}
