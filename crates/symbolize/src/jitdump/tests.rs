//! Tests of the jitdump reader, with files built field by field.

use std::ops::Range;

use profiler_addresses::MonotonicTime;

use super::*;

fn file_header(padding: u32, flags: u64) -> Vec<u8> {
    let words = [0x4a69_5444, 1, 40, 62, padding, 7].map(u32::to_ne_bytes);
    let numbers = [1_u64, flags].map(u64::to_ne_bytes);
    [words.concat(), numbers.concat()].concat()
}

fn record(kind: u32, time_ns: u64, body: &[u8]) -> Vec<u8> {
    let words = [kind, 16 + body.len() as u32].map(u32::to_ne_bytes).concat();
    [&words[..], &time_ns.to_ne_bytes(), body].concat()
}

fn load(time_ns: u64, address: u64, size: u64, name: &str) -> Vec<u8> {
    let fixed = [0, address, address, size, 1].map(u64::to_ne_bytes).concat();
    let code = vec![0xcc; size as usize];
    record(0, time_ns, &[&fixed[..], name.as_bytes(), b"\0", &code].concat())
}

fn moved(time_ns: u64, from: u64, to: u64, size: u64) -> Vec<u8> {
    record(1, time_ns, &[0, to, from, to, size, 1].map(u64::to_ne_bytes).concat())
}

fn debug_info(address: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut body = [address, lines.len() as u64].map(u64::to_ne_bytes).concat();
    for (address, line, file) in lines {
        body.extend([&address.to_ne_bytes()[..], &line.to_ne_bytes(), &[0; 4], file, b"\0"].concat());
    }
    record(2, 0, &body)
}

fn dump(records: &[Vec<u8>]) -> JitDump {
    let mut dump = JitDump::default();
    dump.feed(&file_header(0, 0));
    records.iter().for_each(|record| dump.feed(record));
    dump
}

fn name(dump: &JitDump, address: u64, time_ns: u64) -> Option<&str> {
    dump.lookup(address, MonotonicTime(time_ns))?.name
}

/// `JIT_CODE_UNWINDING_INFO` with an `.eh_frame` section before or behind its `.eh_frame_hdr`.
fn unwinding(eh_frame: &[u8], is_header_first: bool) -> Vec<u8> {
    const HEADER: [u8; 20] = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let data = if is_header_first { [&HEADER, eh_frame].concat() } else { [eh_frame, &HEADER].concat() };
    let sizes = [data.len() as u64, HEADER.len() as u64, 0].map(u64::to_ne_bytes).concat();
    record(4, 0, &[sizes, data].concat())
}

/// A section that begins as one with a CIE does.
fn eh_frame(content: u8) -> Vec<u8> {
    [&8_u32.to_ne_bytes()[..], &0_u32.to_ne_bytes(), &[content; 4]].concat()
}

/// The start, the content and the address of the section of each function.
fn found(dump: &JitDump) -> Vec<(u64, u8, u64)> {
    let functions = dump.call_frames.functions();
    let found = |function: JitFunctionFrames| {
        (function.code.start.0, function.eh_frame[8], function.eh_frame_address.0)
    };
    functions.map(found).collect()
}

#[test]
fn call_frame_information_belongs_to_the_code_that_follows() {
    let dump = dump(&[
        load(1, 0x800, 8, "without"),
        unwinding(&eh_frame(1), false),
        debug_info(0x1000, &[]),
        load(1, 0x1000, 13, "perf"),
        unwinding(&eh_frame(2), true),
        load(1, 0x2000, 16, "as specified"),
        load(1, 0x3000, 16, "without"),
        unwinding(&[], false),
        load(1, 0x4000, 16, "with a header alone"),
    ]);
    // The unwinding data is behind the code, at a multiple of 8.
    assert_eq!(found(&dump), [(0x1000, 1, 0x1010), (0x2000, 2, 0x2010 + 20)]);
    assert_eq!((dump.malformed_records(), dump.truncated()), (0, false));
}

#[test]
fn call_frame_information_moves_with_its_code_and_ends_with_it() {
    let mut dump = dump(&[
        unwinding(&eh_frame(1), false),
        load(1, 0x1000, 16, "moved"),
        unwinding(&eh_frame(2), false),
        load(1, 0x2000, 16, "replaced in part"),
        moved(2, 0x1000, 0x3000, 16),
        load(2, 0x2008, 16, "other"),
        load(2, 0x3000, 0, "empty"),
    ]);
    assert_eq!(found(&dump), [(0x3000, 1, 0x3010)]);
    let changed = dump.take_changed_call_frames().unwrap();
    assert_eq!((changed.functions.len(), changed.as_of), (1, MonotonicTime(2)));
    assert_eq!(dump.take_changed_call_frames(), None);
    dump.feed(&moved(3, 0x7000, 0x300f, 1));
    assert!(found(&dump).is_empty(), "unknown code was moved there");
    assert_eq!(
        dump.take_changed_call_frames(),
        Some(JitCallFrames { functions: Vec::new(), as_of: MonotonicTime(2) }),
        "code that is not known does not move"
    );
    dump.restart();
    dump.feed(&file_header(0, 0));
    dump.feed(&[unwinding(&eh_frame(3), false), load(1, 0x1000, 8, "new")].concat());
    assert_eq!(found(&dump), [(0x1000, 3, 0x1008)]);
}

#[test]
fn malformed_unwinding_information_is_counted_and_left_out() {
    let with_sizes = |sizes: [u64; 3], data: &[u8]| {
        record(4, 0, &[&sizes.map(u64::to_ne_bytes).concat()[..], data].concat())
    };
    let dump = dump(&[
        record(4, 0, &[0; 23]),
        with_sizes([13, 0, 0], &eh_frame(1)),
        with_sizes([u64::MAX, 0, 0], &eh_frame(1)),
        with_sizes([12, 13, 0], &eh_frame(1)),
        with_sizes([12, u64::MAX, 0], &eh_frame(1)),
        with_sizes([12, 4, 0], &[0xff; 12]),
        load(1, 0x1000, 8, "without"),
        with_sizes([12, 0, 0], &eh_frame(1)),
        load(1, u64::MAX, 8, "wraps"),
        load(1, 0x2000, 8, "without"),
    ]);
    assert_eq!(found(&dump), []);
    assert_eq!(dump.malformed_records(), 7);
}

#[test]
fn call_frame_information_is_limited() {
    let mut dump = dump(&[unwinding(&vec![0; 64 << 10], false), load(1, 0x1000, 8, "too long")]);
    assert_eq!((found(&dump).len(), dump.malformed_records()), (0, 0));
    let functions = (1..=(64 << 10) + 1)
        .map(|index| [unwinding(&eh_frame(1), false), load(1, index * 16, 1, "f")].concat());
    functions.for_each(|records| dump.feed(&records));
    assert_eq!((found(&dump).len(), dump.truncated()), (64 << 10, true));
}

#[test]
fn call_frame_information_is_read_in_any_parts() {
    let records = [unwinding(&eh_frame(1), false), load(1, 0x1000, 8, "f"), moved(2, 0x1000, 0x2000, 8)];
    let file = [file_header(0, 0), records.concat()].concat();
    for split in 0..file.len() {
        let mut dump = JitDump::default();
        dump.feed(&file[..split]);
        dump.feed(&file[split..]);
        assert_eq!(found(&dump), [(0x2000, 1, 0x2008)], "{split}");
    }
}

#[test]
fn long_names_that_differ_at_their_ends_have_different_labels() {
    let long = "x".repeat(MAX_NAME_BYTES);
    let dump =
        dump(&[load(1, 0x1000, 16, &format!("{long}one")), load(1, 0x2000, 16, &format!("{long}other"))]);
    let [one, other] = [0x1000, 0x2000].map(|address| name(&dump, address, 1).unwrap());
    assert_ne!(one, other);
    assert_eq!(one.len(), MAX_NAME_BYTES);
}

#[test]
fn code_is_replaced_where_other_code_was_before() {
    let replaced = |dump: &JitDump, address, during_ns: Range<u64>| {
        dump.was_replaced_at(address, MonotonicTime(during_ns.start)..MonotonicTime(during_ns.end))
    };
    let dump = dump(&[
        load(10, 0x1000, 16, "first"),
        load(20, 0x1008, 8, "second"),
        load(20, 0x2000, 8, "elsewhere"),
        load(30, 0x1008, 8, "third"),
    ]);
    assert!(
        replaced(&dump, 0x1008, 10..20) && replaced(&dump, 0x1008, 19..30) && replaced(&dump, 0x100f, 20..31)
    );
    assert!(!replaced(&dump, 0x1008, 10..19), "before it was replaced");
    assert!(!replaced(&dump, 0x1008, 20..29) && !replaced(&dump, 0x1008, 30..40), "after it was replaced");
    assert!(!replaced(&dump, 0x1000, 10..40), "other code");
    assert!(!replaced(&dump, 0x2000, 10..40) && !replaced(&dump, 0x1008, 5..10), "no code was there");
    assert!(!replaced(&dump, 0x3000, 0..40));
}

#[test]
fn code_is_found_by_address_and_time() {
    let dump = dump(&[load(10, 0x1000, 16, "first"), load(20, 0x1008, 16, "second")]);
    assert_eq!(name(&dump, 0x1008, 19), Some("first"));
    assert_eq!(name(&dump, 0x1008, 20), Some("second"));
    assert_eq!(name(&dump, 0x1007, 20), Some("first"));
    assert_eq!(name(&dump, 0x1018, 20), None);
    assert_eq!([19, 20].map(|time_ns| dump.epoch(MonotonicTime(time_ns))), [0, 1]);
}

#[test]
fn moved_code_keeps_its_name_and_lines() {
    let dump = dump(&[
        debug_info(0x1000, &[(0x1000, 5, b"a.cs")]),
        load(10, 0x1000, 16, "method"),
        moved(30, 0x1000, 0x2000, 16),
        moved(40, 0x7777, 0x3000, 16),
    ]);
    let symbol = dump.lookup(0x2004, MonotonicTime(30)).unwrap();
    assert_eq!((symbol.name, symbol.location), (Some("method"), Some(("a.cs", 5))));
    assert_eq!(name(&dump, 0x3000, 40), None, "unknown code cannot move");
}

#[test]
fn lines_begin_at_their_addresses() {
    let lines: [(u64, u32, &[u8]); 4] =
        [(0x1008, 7, b"b.cs"), (0x1004, 6, b"a.cs"), (0x100c, 8, b"\xff"), (0xfff, 1, b"before.cs")];
    let dump = dump(&[debug_info(0x1000, &lines), load(10, 0x1000, 16, "method")]);
    let found = [0x1000, 0x1004, 0x1007, 0x1008, 0x100f]
        .map(|at| dump.lookup(at, MonotonicTime(10)).unwrap().location);
    assert_eq!(found, [None, Some(("a.cs", 6)), Some(("a.cs", 6)), Some(("b.cs", 7)), Some(("a.cs", 8))]);
}

#[test]
fn line_addresses_of_v8_are_corrected() {
    let mut dump = JitDump::default();
    dump.feed(&file_header(0xdead_beef, 0));
    dump.feed(&debug_info(0x1000, &[(0x1040, 3, b"x.js"), (0x1044, 4, b"x.js")]));
    dump.feed(&load(1, 0x1000, 16, "JS:*f x.js:1:1"));
    assert_eq!(dump.lookup(0x1003, MonotonicTime(1)).unwrap().location, Some(("x.js", 3)));
    assert_eq!(dump.lookup(0x1004, MonotonicTime(1)).unwrap().location, Some(("x.js", 4)));
}

#[test]
fn times_of_another_clock_are_not_used() {
    let mut dump = JitDump::default();
    dump.feed(&file_header(0, 1));
    dump.feed(&load(u64::MAX, 0x1000, 16, "first"));
    dump.feed(&load(7, 0x2000, 16, "written twice"));
    assert_eq!(name(&dump, 0x1000, 5), Some("first"));
    dump.feed(&load(3, 0x1008, 16, "second"));
    dump.feed(&load(8, 0x2000, 16, "written twice"));
    assert_eq!([0x1000, 0x1007].map(|address| name(&dump, address, 5)), [Some("first"); 2]);
    // Which of both was there at a time is unknown.
    assert_eq!(
        [0x1008, 0x1017].map(|address| dump.lookup(address, MonotonicTime(5)).unwrap().name),
        [None; 2]
    );
    assert_eq!(name(&dump, 0x2000, 5), Some("written twice"));
}

#[test]
fn unwind_information_the_end_and_unknown_records_are_skipped() {
    let dump = dump(&[
        unwinding(&eh_frame(1), false),
        record(3, 0, b""),
        record(77, 0, &[2; 33]),
        load(1, 0x1000, 0, "empty"),
        load(1, 0x2000, 8, "after"),
    ]);
    assert_eq!(name(&dump, 0x2000, 1), Some("after"));
    assert_eq!(name(&dump, 0x1000, 1), Some("empty"));
    assert_eq!(dump.malformed_records(), 0);
}

#[test]
fn a_record_that_is_too_short_affects_itself_only() {
    let no_name = record(0, 1, &[0, 0x3000, 0x3000, 8, 1].map(u64::to_ne_bytes).concat());
    let dump = dump(&[
        record(0, 1, &[0; 39]),
        record(1, 1, &[0; 39]),
        record(2, 1, &[0; 15]),
        no_name,
        load(1, u64::MAX, 0, "wraps"),
        load(1, 0x2000, 8, "after"),
    ]);
    assert_eq!(dump.malformed_records(), 5);
    assert_eq!(name(&dump, 0x3000, 1), None);
    assert_eq!(name(&dump, 0x2000, 1), Some("after"));
}

#[test]
fn a_file_that_is_no_jitdump_is_read_no_further() {
    let mut swapped = file_header(0, 0);
    swapped[..4].reverse();
    let mut version = file_header(0, 0);
    version[4] = 9;
    let mut short = file_header(0, 0);
    short[8] = 39;
    for header in [swapped, version, short, b"This is text, and more than forty bytes of it.".to_vec()] {
        let mut dump = JitDump::default();
        dump.feed(&header);
        dump.feed(&load(1, 0x1000, 8, "x"));
        assert_eq!(
            (name(&dump, 0x1000, 1), dump.malformed_records(), dump.records.memory_bytes()),
            (None, 1, 0)
        );
    }
}

#[test]
fn a_record_shorter_than_its_header_ends_the_file() {
    let mut broken = record(0, 1, b"");
    broken[4] = 15;
    let mut dump = dump(&[load(1, 0x1000, 8, "before"), broken, load(1, 0x2000, 8, "after")]);
    assert_eq!(name(&dump, 0x1000, 1), Some("before"));
    assert_eq!(name(&dump, 0x2000, 1), None);
    dump.restart();
    dump.feed(&file_header(0, 0));
    dump.feed(&load(1, 0x2000, 8, "again"));
    assert_eq!(name(&dump, 0x2000, 1), Some("again"));
    assert_eq!(name(&dump, 0x1000, 1), Some("before"));
}

#[test]
fn machine_code_and_huge_records_are_not_kept() {
    let mut dump = dump(&[load(1, 0x1000, 8, "before")]);
    let mut huge = record(2, 1, b"");
    huge[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    dump.feed(&huge);
    for _ in 0..100 {
        dump.feed(&[0; 100_000]);
        assert!(dump.records.memory_bytes() == 0);
    }
    let mut dump = self::dump(&[load(1, 0x1000, 1 << 20, &"n".repeat(100_000))]);
    dump.feed(&load(1, 0x20_0000, 8, "next"));
    assert_eq!(name(&dump, 0x1000, 1).map(str::len), Some(16 << 10));
    assert_eq!(name(&dump, 0x20_0000, 1), Some("next"));
}

#[test]
fn line_tables_without_code_are_limited() {
    let tables: Vec<_> = (0..5_000).map(|at| debug_info(at, &[(at, 1, b"a.cs")])).collect();
    let dump = dump(&tables);
    assert_eq!(dump.pending_tables.len(), MAX_PENDING_TABLES);
}

fn sample_file() -> Vec<u8> {
    [
        file_header(0, 0),
        debug_info(0x1000, &[(0x1000, 5, b"a.cs"), (0x1004, 6, b"\xff")]),
        load(10, 0x1000, 40, "first\u{e9}"),
        record(4, 0, &[1; 10]),
        load(20, 0x1010, 3, "second"),
        moved(30, 0x1010, 0x1100, 3),
    ]
    .concat()
}

#[test]
fn feeding_at_any_split_gives_the_same_names() {
    let file = sample_file();
    let mut whole = JitDump::default();
    whole.feed(&file);
    for split in 0..=file.len() {
        let mut parts = JitDump::default();
        parts.feed(&file[..split]);
        parts.feed(&file[split..]);
        for address in 0x1000..0x1110 {
            assert_eq!(
                parts.lookup(address, MonotonicTime(30)),
                whole.lookup(address, MonotonicTime(30)),
                "{split}"
            );
        }
    }
    let mut bytewise = JitDump::default();
    file.iter().for_each(|&byte| bytewise.feed(&[byte]));
    assert_eq!(bytewise.lookup(0x1101, MonotonicTime(30)), whole.lookup(0x1101, MonotonicTime(30)));
    assert_eq!(name(&whole, 0x1101, 30), Some("second"));
}

#[test]
fn damaged_files_never_panic() {
    let file = sample_file();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut damaged = file.clone();
        for _ in 0..random.u64(0..8) {
            let at = 40 + random.u64(0..file.len() as u64 - 40) as usize;
            damaged[at] = random.u64(0..256) as u8;
        }
        let mut dump = JitDump::default();
        let split = random.u64(0..damaged.len() as u64) as usize;
        dump.feed(&damaged[..split]);
        dump.feed(&damaged[split..]);
        for address in [0, 0x1000, 0x1010, 0x1100, u64::MAX] {
            dump.lookup(address, MonotonicTime(random.u64(0..40)));
        }
    }
}
