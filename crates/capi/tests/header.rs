//! Tests that `include/profiler.h` is the header of the functions: `BLESS=1` writes it.

use std::{env, fs, path::Path};

#[test]
fn the_header_is_that_of_the_functions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/profiler.h");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_src(folder.join("src/lib.rs")).with_config(config);
    let mut header = Vec::new();
    bindings.generate().unwrap().write(&mut header);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let written = fs::read(&path).unwrap_or_default();
    assert!(written == header, "{} is outdated: run this test with BLESS=1", path.display());
}
