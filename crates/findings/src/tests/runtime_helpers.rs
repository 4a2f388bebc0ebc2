//! The causes of waits in the helpers that the tables of a .NET runtime name: all of them, for the versions 3.1 to 10.
//!
//! `BLESS=1 cargo test -p profiler-findings` writes the causes that the rules give: look at each line that changes.

use std::{fs, path::Path};

use super::Threads;
use crate::Waits;
use profiler_profile::ThreadState;

/// The cause of a wait below a helper that a method of the application calls, with these frames between it and the leaf.
fn cause(helper: &str, between: &str) -> String {
    let folded = format!(
        "start_thread@libc.so.6;shop!Shop.Price.Read();{helper}@libcoreclr.so;{between}[libcoreclr.so]@libcoreclr.so;\
         pthread_cond_wait@libc.so.6"
    );
    let profile = Threads::wall().add(1, ThreadState::Blocked, &folded).profile();
    Waits::of(&profile).cause(&profile.samples()[0]).expect("the thread waits").to_string()
}

#[test]
fn each_helper_has_its_cause() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers.txt");
    let kept = fs::read_to_string(&path).unwrap();
    let names = kept.lines().map(|line| line.split_once('\t').unwrap_or_else(|| panic!("{line}")).1);
    let found: String = names.map(|name| format!("{}\t{name}\n", cause(name, ""))).collect();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &found).unwrap();
    } else {
        assert_eq!(found, kept);
    }
}

/// A type initializer waits for something of its own.
#[test]
fn a_method_below_a_helper_waits_for_something_else() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers.txt");
    for line in fs::read_to_string(path).unwrap().lines() {
        let (_, name) = line.split_once('\t').unwrap();
        assert_eq!(cause(name, "shop!Shop.Table..cctor();"), "condition variable", "{name}");
    }
}
