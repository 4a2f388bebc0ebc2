//! Tests of the parser of `/proc/kallsyms`.

use super::*;

const TEXT: &str = "\
    0000000000000000 A fixed_percpu_data\n\
    ffffffff81000000 T _stext\n\
    ffffffff81000000 T startup\n\
    ffffffff81000000 T _text\n\
    ffffffff81000100 t __pfx_do_work\n\
    ffffffff81000110 t do_work\n\
    ffffffff81000118 t .Llabel\n\
    ffffffff8100011c t $x\n\
    ffffffff81000200 W weak\n\
    ffffffff81000200 t alias\n\
    ffffffff81000300 T __sched_text_start\n\
    ffffffff81000300 T schedule\n\
    ffffffff81000400 T __sched_text_end\n\
    ffffffff81001000 T _etext\n\
    ffffffff82000000 D data\n\
    ffffffff83000000 T init\n\
    ffffffffc0300000 d module_data\t[xfs]\n\
    ffffffffc0201000 t xfs_write\t[xfs]\n\
    ffffffffc0200000 t xfs_read\t[xfs]\n\
    ffffffffc0400000 t bpf_prog_6deef7357e7b4530_f\t[bpf]\n";

fn name(symbols: &KernelSymbols, address: u64) -> Option<String> {
    symbols.lookup(RuntimeAddress(address)).map(|function| function.name)
}

#[test]
fn an_address_belongs_to_the_function_with_the_closest_lower_start() {
    let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
    assert_eq!(name(&symbols, 0xffff_ffff_8100_0000).as_deref(), Some("startup"));
    assert_eq!(name(&symbols, 0xffff_ffff_8100_01ff).as_deref(), Some("do_work"));
    assert_eq!(name(&symbols, 0xffff_ffff_8100_0200).as_deref(), Some("weak"));
    assert_eq!(name(&symbols, 0xffff_ffff_80ff_ffff).as_deref(), None);
    assert_eq!(name(&symbols, 0).as_deref(), None);
}

#[test]
fn the_padding_before_a_function_belongs_to_it() {
    let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
    for address in 0xffff_ffff_8100_0100..0xffff_ffff_8100_0200 {
        assert_eq!(name(&symbols, address).as_deref(), Some("do_work"));
    }
}

#[test]
fn functions_end_at_the_end_of_their_section_or_code() {
    let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
    assert_eq!(name(&symbols, 0xffff_ffff_8100_03ff).as_deref(), Some("schedule"));
    assert_eq!(name(&symbols, 0xffff_ffff_8100_0400).as_deref(), None);
    assert_eq!(name(&symbols, 0xffff_ffff_8100_1000).as_deref(), None);
    assert_eq!(name(&symbols, 0xffff_ffff_8200_0000).as_deref(), None);
    assert_eq!(name(&symbols, 0xffff_ffff_8300_0000 + MAX_LAST_FUNCTION_BYTES - 1).as_deref(), Some("init"));
    assert_eq!(name(&symbols, 0xffff_ffff_8300_0000 + MAX_LAST_FUNCTION_BYTES).as_deref(), None);
    assert_eq!(name(&symbols, u64::MAX).as_deref(), None);
}

#[test]
fn functions_of_modules_and_bpf_programs_have_a_module() {
    let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
    let found = |address| symbols.lookup(RuntimeAddress(address));
    let xfs = |name: &str, offset| {
        Some(KernelFunction { name: name.to_owned(), module: Some("xfs".to_owned()), offset })
    };
    assert_eq!(found(0xffff_ffff_c020_0fff), xfs("xfs_read", 0xfff));
    assert_eq!(found(0xffff_ffff_c020_1000), xfs("xfs_write", 0));
    assert_eq!(found(0xffff_ffff_c030_0000), None);
    assert_eq!(found(0xffff_ffff_c040_0010).unwrap().module.as_deref(), Some("bpf"));
    assert_eq!(found(0xffff_ffff_8100_0110).unwrap().module, None);
}

#[test]
fn hidden_addresses_are_an_error() {
    let hidden = "0000000000000000 T _stext\n0000000000000000 t do_work\n0000000000000000 t x\t[xfs]\n";
    for text in [hidden, "          (null) T _stext\n", "no symbols at all\n"] {
        assert_eq!(KernelSymbols::read(text.as_bytes()).unwrap_err(), Reason::KernelAddressesHidden);
    }
}

#[test]
fn unreadable_and_empty_text_is_an_error() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    assert_eq!(KernelSymbols::read(Fails).unwrap_err(), Reason::KernelSymbolsNotReadable);
    assert_eq!(KernelSymbols::read(io::empty()).unwrap_err(), Reason::KernelSymbolsNotReadable);
}

/// Returns a few bytes per read, like `/proc` with large files.
struct ShortReads<'a>(&'a [u8], usize);

impl Read for ShortReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        let (portion, rest) = self.0.split_at(count);
        buffer[..count].copy_from_slice(portion);
        self.0 = rest;
        Ok(count)
    }
}

#[test]
fn reads_of_any_size_have_the_same_result() {
    let whole = KernelSymbols::read(TEXT.as_bytes()).unwrap();
    for size in 1..TEXT.len() {
        let parts = KernelSymbols::read(ShortReads(TEXT.as_bytes(), size)).unwrap();
        assert_eq!(format!("{parts:?}"), format!("{whole:?}"));
    }
}

#[test]
fn damaged_text_never_panics() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..5_000 {
        let mut text = TEXT.as_bytes().to_vec();
        for _ in 0..random.u64(0..20) {
            let at = random.u64(0..text.len() as u64) as usize;
            text[at] = random.u64(0..256) as u8;
        }
        if let Ok(symbols) = KernelSymbols::read(&text[..]) {
            symbols.lookup(RuntimeAddress(0xffff_ffff_8100_0000 + random.u64(0..0x4000)));
        }
    }
}

#[test]
fn reading_ends_at_a_line_that_is_longer_than_a_chunk() {
    let text = format!("{TEXT}ffffffffc0500000 t {}\n", "x".repeat(3 * CHUNK_BYTES));
    let symbols = KernelSymbols::read(text.as_bytes()).unwrap();
    assert_eq!(name(&symbols, 0xffff_ffff_8100_0110).as_deref(), Some("do_work"));
    assert_eq!(name(&symbols, 0xffff_ffff_c050_0000).map(|name| name.len()), Some(MAX_NAME_BYTES));
}

#[test]
fn long_names_that_differ_at_their_ends_have_different_labels() {
    let long = "x".repeat(MAX_NAME_BYTES);
    let text = format!("{TEXT}ffffffffc0500000 t {long}one\nffffffffc0500100 t {long}other\n");
    let symbols = KernelSymbols::read(text.as_bytes()).unwrap();
    assert_ne!(name(&symbols, 0xffff_ffff_c050_0000), name(&symbols, 0xffff_ffff_c050_0100));
}

#[test]
fn the_symbols_of_the_running_kernel_are_parsed() {
    let file = std::fs::File::open("/proc/kallsyms").unwrap();
    match KernelSymbols::read(file) {
        Ok(symbols) => assert!(symbols.symbols.len() > 1_000),
        Err(reason) => assert_eq!(reason, Reason::KernelAddressesHidden),
    }
}
