//! Differential test: `UNWIND_INFO` against the machine code of the prologues, for every function of the libraries of the
//! .NET runtimes that `cargo xtask workloads` sets up. Without them the test prints so and passes, unless privileged tests
//! are required.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use super::super::{unwind_info::Frame, *};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

#[derive(Debug, Default)]
struct Tally {
    images: usize,
    functions: usize,
    malformed: u32,
    /// Instructions of prologues whose frames are equal.
    compared: usize,
    /// Instructions that [`run_prologue`] does not know: they probe the pages of a large frame.
    unknown: usize,
    /// Functions with a frame and without an epilogue: they never return.
    without_epilogue: usize,
    different: Vec<String>,
}

fn libraries(version: &str) -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/workloads/dotnet")
        .join(version)
        .join("shared");
    let entries =
        |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    if !shared.exists() {
        let is_required = std::env::var_os("PROFILER_REQUIRE_PRIVILEGED").is_some();
        assert!(!is_required, "{} is missing: run `cargo xtask workloads`", shared.display());
        eprintln!("not tested: {} is missing: run `cargo xtask workloads`", shared.display());
    }
    let files = entries(&shared).flat_map(|name| entries(&name).collect::<Vec<_>>());
    let files = files.flat_map(|version| entries(&version).collect::<Vec<_>>());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "dll")).collect()
}

#[test]
fn unwind_info_agrees_with_the_code_of_prologues() {
    for version in VERSIONS {
        let libraries = libraries(version);
        let mut tally = Tally::default();
        libraries.iter().for_each(|library| compare_image(library, &mut tally));
        println!("{version}: {tally:?}");
        let some = &tally.different[..10.min(tally.different.len())];
        assert!(some.is_empty(), "{version}: {} different: {some:#?}", tally.different.len());
        assert!(libraries.is_empty() || tally.compared > 100_000);
        assert!(tally.unknown * 1_000 <= tally.compared);
        assert!(tally.without_epilogue * 10 <= tally.functions);
        assert_eq!(tally.malformed, 0);
    }
}

fn compare_image(path: &Path, tally: &mut Tally) {
    let open = || Image::from_file(File::open(path).unwrap()).unwrap();
    let Ok(Some((precompiled, _))) = PrecompiledSource::read(open()) else { return };
    tally.images += 1;
    tally.malformed += precompiled.malformed_functions;
    let mut image = PagedImage::new(open(), Arc::default()).unwrap();
    let pe = Pe::read(&mut image).unwrap();
    let mut reader = CodeReader::default();
    for function in &precompiled.functions {
        tally.functions += 1;
        let stated = precompiled.unwind_info.prologue(function.unwind_info).unwrap();
        let has_frame = stated.frames.last().is_some_and(|(_, frame)| *frame != Frame::AT_ENTRY);
        tally.without_epilogue += usize::from(has_frame && precompiled.epilogues_in(*function).is_empty());
        let code = reader.read_function(&image, &pe, *function).unwrap();
        let executed = run_prologue(code);
        for (offset, frame) in &stated.frames {
            match executed.iter().find(|(at, _)| *at == usize::from(*offset)) {
                Some((_, size)) if *size == frame.size => tally.compared += 1,
                None if executed.last().is_some_and(|(at, _)| *at < usize::from(*offset)) => {
                    tally.unknown += 1;
                }
                found => {
                    let (name, start) = (path.display(), function.start);
                    tally
                        .different
                        .push(format!("{name} {start:#x}+{offset}: {frame:?}, {found:?} in {code:x?}"));
                }
            }
        }
    }
}

/// The size of the frame after each instruction of a function, up to the first instruction that is not one of prologues.
fn run_prologue(code: &[u8]) -> Vec<(usize, u32)> {
    let mut size = Frame::AT_ENTRY.size;
    let mut sizes = vec![(0, size)];
    let mut at = 0;
    while let Some(rest) = code.get(at..) {
        let (bytes, growth) = match *rest {
            [0x50..=0x57, ..] => (1, 8),
            [0x41, 0x50..=0x57, ..] => (2, 8),
            [0x48, 0x83, 0xec, by, ..] => (4, by.into()),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => (7, u32::from_le_bytes([a, b, c, d])),
            // nop; vzeroupper; lea rbp, [rsp + ...]; mov rbp, rsp
            [0x0f, 0x1f, 0x40, 0, ..] => (4, 0),
            [0xc5, 0xf8, 0x77, ..] | [0x48, 0x8b, 0xec, ..] | [0x48, 0x89, 0xe5, ..] => (3, 0),
            [0x48, 0x8d, 0x6c, 0x24, ..] => (5, 0),
            [0x48, 0x8d, 0xac, 0x24, ..] => (8, 0),
            _ => return sizes,
        };
        at += bytes;
        size += growth;
        sizes.push((at, size));
    }
    sizes
}
