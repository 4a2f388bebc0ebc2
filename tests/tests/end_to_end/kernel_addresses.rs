//! No output contains an address of the kernel: other users could read it there, and `kptr_restrict` hides it from them.

use std::{
    fs,
    io::{Cursor, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use profiler::{Profile, profile::FrameKind};
use profiler_tests::{
    OUTPUT_FILES, Sysctl, Workload, measure_alone, profiler, run_beside_others, run_command,
};
use zip::ZipArchive;

/// The first address of the kernel (Documentation/arch/x86/x86_64/mm.rst).
const KERNEL_START: u64 = 0xffff_8000_0000_0000;

/// The kernel addresses in a text: as hexadecimal or as decimal numbers.
fn addresses_in_text(text: &[u8]) -> Vec<String> {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| word.len() >= 16);
    let words = words.filter_map(|word| std::str::from_utf8(word).ok());
    let is_address = |word: &&str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let hexadecimal = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16);
        hexadecimal.or(word.parse().ok()).is_some_and(|number| number >= KERNEL_START)
    };
    words.filter(is_address).map(str::to_owned).collect()
}

/// The kernel addresses in a message of protocol buffers: integers of ten bytes.
fn addresses_in_message(message: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| {
        let is_long = bytes[..9].iter().all(|byte| byte & 0x80 != 0) && bytes[9] == 1;
        let low = bytes[..9].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
        is_long.then_some(low | 1 << 63)
    };
    message.windows(10).filter_map(number).filter(|number| *number >= KERNEL_START).collect()
}

/// The content of all files in an archive.
fn unpack(archive: &[u8]) -> Vec<u8> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut content = Vec::new();
    for index in 0..archive.len() {
        archive.by_index(index).unwrap().read_to_end(&mut content).unwrap();
    }
    content
}

fn assert_without_addresses(path: &Path) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(addresses_in_text(&bytes), [""; 0], "{}", path.display());
    if path.ends_with("a.trace.zip") {
        let text = unpack(&bytes);
        assert!(text.contains(&b'\n'), "it has samples");
        assert_eq!(addresses_in_text(&text), [""; 0], "{}", path.display());
    }
    if path.ends_with("a.pb.gz") {
        let mut message = Vec::new();
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut message).unwrap();
        assert_eq!(addresses_in_message(&message), [0_u64; 0]);
    }
    if path.ends_with("a.profile") {
        let profile = Profile::read(&bytes[..]).unwrap();
        let kernel: Vec<_> = profile.frames().filter(|frame| frame.kind == FrameKind::Kernel).collect();
        assert!(!kernel.is_empty());
        let raw = kernel.iter().filter(|frame| frame.address.0 >= KERNEL_START).count();
        assert_eq!(raw, 0, "of {} frames", kernel.len());
    }
}

fn assert_no_output_has_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::start("syscalls");
    let mut command = profiler(&["-p", &workload.pid().to_string(), "-F", "999", "-d", "1", "-vv"]);
    for name in OUTPUT_FILES {
        command.arg("-o").arg(folder.path().join(name));
    }
    let run = run_command(command.arg("--addresses"));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(addresses_in_text(run.stderr.as_bytes()), [""; 0]);
    for name in OUTPUT_FILES {
        assert_without_addresses(&folder.path().join(name));
    }
}

#[test]
fn outputs_have_no_kernel_addresses_where_the_kernel_shows_them() {
    let Some(_lock) = run_beside_others() else { return };
    assert_no_output_has_addresses();
}

#[test]
fn kernel_addresses_are_recognized() {
    assert_eq!(
        addresses_in_text(b"a ffffffff81000010 b 0xffff888000000000;18446744071578845200,"),
        ["ffffffff81000010", "0xffff888000000000", "18446744071578845200"]
    );
    assert_eq!(addresses_in_text(b"7fffdeadbeef0000 ffffffff 1844674407157884520 00000000ffffffff"), [""; 0]);
    let message = [8, 0x90, 0x80, 0x80, 0x88, 0xf8, 0xff, 0xff, 0xff, 0xff, 1, 8];
    assert_eq!(addresses_in_message(&message), [0xffff_ffff_8100_0010_u64]);
}

mod measured {
    use super::*;

    #[test]
    fn outputs_have_no_kernel_addresses_where_the_kernel_hides_them() {
        let Some(_lock) = measure_alone() else { return };
        let _setting = Sysctl::set("kptr_restrict", 2);
        assert_no_output_has_addresses();
    }
}
