//! Tests of the unwind maps: installed tables and mappings are looked up as the unwinder looks them up.

use profiler_common::unwind::{CfaRule, PAGE_BITS};
use profiler_processes::Pid;

use super::{
    super::test_maps::{Contents, unwind_maps},
    *,
};

/// A pseudo-random number generator with a fixed seed.
struct Random(u64);

impl Random {
    /// A number below `limit`.
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(((self.0 >> 32) * u64::from(limit)) >> 32).unwrap()
    }
}

#[derive(Clone)]
struct Table {
    first_page: u32,
    pages: Vec<Vec<Row>>,
    rules: Vec<Rule>,
}

impl Table {
    fn random(random: &mut Random) -> Self {
        let rule_count = 1 + random.below(40);
        let rules = (0..rule_count).map(|_| rule(random.below(200))).collect();
        let pages = (0..random.below(60)).map(|_| {
            let step = 1 + random.below(130);
            let offsets = (0..random.below(4) * 10).map(|index| u16::try_from(index * step).unwrap());
            offsets.map(|offset| Row::new(offset, u16::try_from(random.below(rule_count)).unwrap())).collect()
        });
        let pages = pages.collect();
        Self { first_page: random.below(1 << 20), pages, rules }
    }

    /// Pages of one row each, which cycle through the rules.
    fn of_pages(pages: u32, rules: Range<u32>) -> Self {
        let count = rules.end - rules.start;
        let row = |page: u32| vec![Row::new(0, u16::try_from(page % count).unwrap())];
        Self { first_page: 0, pages: (0..pages).map(row).collect(), rules: rules.map(rule).collect() }
    }

    fn add_to(&self, maps: &mut UnwindMaps) -> Result<InstalledFile, InstallError> {
        let count = u32::try_from(self.pages.len()).unwrap();
        maps.add_file(self.first_page, count, self.pages.iter(), &self.rules)
    }

    fn assert_found(&self, file: &InstalledFile, contents: &Contents) {
        let bias = 0x5000_0000_0000;
        let mapping = file.mapping(0, u64::MAX, bias);
        let page_address = |page: u32| bias + (u64::from(self.first_page + page) << PAGE_BITS);
        for (rows, page) in self.pages.iter().zip(0..) {
            for row in rows {
                let address = page_address(page) + u64::from(row.offset());
                assert_eq!(contents.rule(&mapping, address), self.rules[row.rule() as usize]);
            }
            if rows.is_empty() {
                assert_eq!(contents.rule(&mapping, page_address(page)), Rule::default());
            }
        }
    }
}

fn rule(offset: u32) -> Rule {
    Rule { cfa: CfaRule::StackPointer as u8, cfa_offset: offset.cast_signed(), ..Rule::default() }
}

fn mappings(count: u32, start: u64) -> Vec<MappingEntry> {
    let mapping = |index| MappingEntry {
        start: start + 2 * index,
        end: start + 2 * index + 1,
        ..MappingEntry::default()
    };
    (0..u64::from(count)).map(mapping).collect()
}

#[test]
fn installed_tables_are_found_and_removed_tables_free_their_ranges() {
    const STEPS: u32 = 1_000;
    const CHECK_EVERY: u32 = 100;
    let Some(mut maps) = unwind_maps() else { return };
    let mut random = Random(1);
    let mut files: Vec<(Table, InstalledFile)> = Vec::new();
    for step in 0..STEPS {
        if files.is_empty() || random.below(100) < 55 {
            let table = Table::random(&mut random);
            let installed = table.add_to(&mut maps).unwrap();
            files.push((table, installed));
        } else {
            let removed = random.below(u32::try_from(files.len()).unwrap());
            maps.remove_file(files.swap_remove(removed as usize).1);
        }
        if random.below(20) == 0 {
            maps.reclaim().unwrap();
        }
        if step % CHECK_EVERY == CHECK_EVERY - 1 {
            let contents = maps.contents();
            files.iter().for_each(|(table, file)| table.assert_found(file, &contents));
        }
    }
    assert!(files.len() > 10);
    files.into_iter().for_each(|(_, file)| maps.remove_file(file));
    assert!(maps.are_empty());
}

#[test]
fn the_mappings_of_a_process_are_found_until_they_are_removed() {
    let Some(mut maps) = unwind_maps() else { return };
    let (first, second) = (mappings(3, 100), mappings(500, 1_000));
    let (first_at, second_at) = (maps.add_mappings(&first).unwrap(), maps.add_mappings(&second).unwrap());
    maps.set_process(Pid(7), &first_at).unwrap();
    maps.set_process(Pid(8), &second_at).unwrap();
    maps.set_process(Pid(9), &second_at).unwrap();
    let contents = maps.contents();
    let found = |pid| contents.mappings(maps.process(pid).unwrap());
    assert!(found(Pid(7)) == first && found(Pid(8)) == second && found(Pid(9)) == second);
    let mut pids = maps.processes().unwrap();
    pids.sort_unstable();
    assert_eq!(pids, [7, 8, 9].map(Pid));
    maps.remove_process(Pid(8)).unwrap();
    maps.remove_process(Pid(8)).unwrap();
    assert_eq!(maps.process(Pid(8)), None);
    maps.remove_mappings(first_at);
    maps.remove_mappings(second_at);
    assert!(maps.are_empty());
}

/// The sampling programs keep the rules of return addresses by generation.
#[test]
fn processes_with_other_mappings_have_another_generation() {
    let Some(mut maps) = unwind_maps() else { return };
    let entries = mappings(3, 100);
    let [first, again] = [(); 2].map(|()| maps.add_mappings(&entries).unwrap());
    for (pid, installed) in [(7, &first), (8, &first), (9, &again)] {
        maps.set_process(Pid(pid), installed).unwrap();
    }
    let [parent, child, other] = [7, 8, 9].map(|pid| maps.process(Pid(pid)).unwrap().generation);
    assert_eq!(parent, child);
    assert_ne!(parent, other);
}

#[test]
fn removed_mappings_are_reclaimed_without_any_table() {
    let Some(mut maps) = unwind_maps() else { return };
    let entries = mappings(MAX_MAPPINGS_PER_PROCESS, 0);
    for _ in 0..3 * MAX_MAPPINGS / MAX_MAPPINGS_PER_PROCESS {
        let installed = maps.add_mappings(&entries).unwrap();
        maps.remove_mappings(installed);
    }
    assert!(maps.are_empty());
}

#[test]
fn a_full_mappings_map_rejects_more_and_keeps_its_contents() {
    let Some(mut maps) = unwind_maps() else { return };
    let too_many = mappings(MAX_MAPPINGS_PER_PROCESS + 1, 0);
    assert!(matches!(maps.add_mappings(&too_many), Err(InstallError::CapacityExceeded)));
    let most: Vec<_> = (0..u64::from(MAX_MAPPINGS / MAX_MAPPINGS_PER_PROCESS))
        .map(|index| maps.add_mappings(&mappings(MAX_MAPPINGS_PER_PROCESS, index << 32)).unwrap())
        .collect();
    assert!(matches!(maps.add_mappings(&mappings(1, 0)), Err(InstallError::CapacityExceeded)));
    for (installed, index) in most.iter().zip(0..) {
        maps.set_process(Pid(index), installed).unwrap();
        let found = maps.contents().mappings(maps.process(Pid(index)).unwrap())[0].start;
        assert_eq!(found, u64::from(index) << 32);
    }
    most.into_iter().for_each(|installed| maps.remove_mappings(installed));
    assert!(maps.add_mappings(&mappings(1, 0)).is_ok());
}

#[test]
fn a_full_processes_map_rejects_more() {
    let Some(mut maps) = unwind_maps() else { return };
    let installed = maps.add_mappings(&mappings(1, 0)).unwrap();
    let rejected = (0..).find(|pid| maps.set_process(Pid(*pid), &installed).is_err()).unwrap();
    assert_eq!(rejected, MAX_PROCESSES);
    assert!(matches!(maps.set_process(Pid(rejected), &installed), Err(InstallError::CapacityExceeded)));
    maps.set_process(Pid(0), &installed).unwrap();
    maps.remove_process(Pid(0)).unwrap();
    maps.set_process(Pid(rejected), &installed).unwrap();
}

/// Installs a small file, then `next` until one is rejected: the small one is still found, and after all files are
/// removed everything is free.
fn fill(mut next: impl FnMut(u32) -> Table) {
    let Some(mut maps) = unwind_maps() else { return };
    let small = Table::of_pages(3, 0..3);
    let first = small.add_to(&mut maps).unwrap();
    let mut files = Vec::new();
    let error = loop {
        match next(u32::try_from(files.len()).unwrap()).add_to(&mut maps) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InstallError::CapacityExceeded) && !files.is_empty());
    small.assert_found(&first, &maps.contents());
    // The ranges that the rejected file allocated are free.
    let second = small.add_to(&mut maps).unwrap();
    small.assert_found(&second, &maps.contents());
    files.extend([first, second]);
    files.into_iter().for_each(|file| maps.remove_file(file));
    assert!(maps.are_empty());
}

#[test]
fn a_full_pages_map_rejects_more_and_keeps_its_contents() {
    let many = Table { pages: vec![Vec::new(); MAX_PAGES as usize / 4], ..Table::of_pages(0, 0..1) };
    fill(|_| many.clone());
}

#[test]
fn a_full_rules_map_rejects_more_and_keeps_its_contents() {
    const EACH: u32 = 3_000;
    fill(|index| Table::of_pages(EACH, index * EACH..(index + 1) * EACH));
}

#[test]
fn full_rows_reject_more_and_keep_their_contents() {
    const ROWS_OF_A_PAGE: u16 = 1 << PAGE_BITS;
    let page: Vec<Row> = (0..ROWS_OF_A_PAGE).map(|offset| Row::new(offset, offset % 2)).collect();
    let many = Table { pages: vec![page; 1_000], ..Table::of_pages(0, 0..2) };
    fill(|_| many.clone());
}
