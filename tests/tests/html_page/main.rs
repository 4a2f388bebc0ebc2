//! Tests the interactive page in a real browser with the scripts in `tests/page`, and checks the types of its own script.

mod profiles;
mod runtime_events;
mod waiting;

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use profiler::{Difference, Format, OutputOptions, Profile, Shape, difference::FunctionChange};
use profiler_tests::{Workload, profiler, run_beside_others, run_command};
use serde_json::{Value, json};

use self::{
    profiles::{counted, empty, hostile, known, lanes, large, many_lanes, two_events, with_findings},
    runtime_events::{known_events, many_events, of_cpu_samples},
    waiting::{waits, with_incident, with_incident_from_the_start, with_incident_of_waits, with_wakers},
};

/// Upper limit for the page of a million samples with 50,000 stacks.
const LARGE_PAGE_BYTES: u64 = 10_000_000;

fn write(profile: &Profile, folder: &Path, name: &str) {
    let file = File::create(folder.join(name)).unwrap();
    Format::Html.write_with(profile, &OutputOptions::default(), file).unwrap();
}

/// The stacks of the known profile that contain this function.
fn focused(function: &str) -> Profile {
    known().shaped(&Shape { focus: Some(function.parse().unwrap()), ..Shape::default() })
}

fn write_difference(before: &Profile, after: &Profile, folder: &Path, name: &str) {
    let file = File::create(folder.join(name)).unwrap();
    let difference = Difference::between(before, after);
    Format::Html.write_difference(&difference, &OutputOptions::default(), file).unwrap();
}

fn assert_is_small(folder: &Path, name: &str) {
    let bytes = folder.join(name).metadata().unwrap().len();
    assert!(bytes < LARGE_PAGE_BYTES, "{name} takes {bytes} bytes");
}

#[test]
fn every_part_of_the_page_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    write(&known(), folder.path(), "known.html");
    write(&hostile(), folder.path(), "hostile.html");
    write(&large(1), folder.path(), "large.html");
    write(&empty(), folder.path(), "empty.html");
    write(&two_events(20), folder.path(), "events.html");
    write(&two_events(0), folder.path(), "only-waiting.html");
    write(&with_findings(), folder.path(), "findings.html");
    write(&lanes(), folder.path(), "lanes.html");
    write(&many_lanes(), folder.path(), "many-lanes.html");
    write(&known_events(), folder.path(), "runtime-events.html");
    write(&of_cpu_samples(), folder.path(), "cpu-runtime-events.html");
    write(&many_events(), folder.path(), "many-runtime-events.html");
    write(&waits(), folder.path(), "waits.html");
    write(&with_wakers(), folder.path(), "wakers.html");
    write(&with_incident(), folder.path(), "incident.html");
    write(&with_incident_from_the_start(), folder.path(), "incident-from-the-start.html");
    write(&with_incident_of_waits(), folder.path(), "incident-of-waits.html");
    write(&focused("Hot"), folder.path(), "part.html");
    write(&focused("no such function"), folder.path(), "nothing.html");
    assert_is_small(folder.path(), "large.html");
    let scripts = [
        "names",
        "colours",
        "page",
        "address",
        "findings",
        "lanes",
        "runtime_events",
        "states",
        "waits",
        "wakers",
        "incident",
    ]
    .map(|name| format!("page/{name}.test.mjs"));
    browse(&scripts.each_ref().map(String::as_str), folder.path());
}

#[test]
fn every_part_of_a_difference_page_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = |before: &Profile, after: &Profile, name| write_difference(before, after, folder.path(), name);
    let before =
        counted(&[("main;parse", 300), ("main;read", 550), ("main;old;leaf", 100), ("main;idle", 50)]);
    let after =
        counted(&[("main;parse", 1000), ("main;read", 744), ("main;new;leaf", 160), ("main;idle", 96)]);
    page(&before, &after, "changed.html");
    page(&before, &before, "same.html");
    page(&empty(), &after, "empty-before.html");
    page(&before, &empty(), "empty-after.html");
    page(&empty(), &empty(), "empty-both.html");
    page(&known(), &hostile(), "hostile-difference.html");
    page(&large(1), &large(2), "large-difference.html");
    assert_is_small(folder.path(), "large-difference.html");
    let expected = table(&Difference::between(&known(), &hostile())).to_string();
    fs::write(folder.path().join("hostile-difference.json"), expected).unwrap();
    browse(&["page/change.test.mjs", "page/difference.test.mjs"], folder.path());
}

/// The function table of the difference, in the form that the page shows.
fn table(difference: &Difference<'_>) -> Value {
    let row = |function: &FunctionChange<'_>| {
        let (own, total) = (&function.self_change, &function.total_change);
        let numbers = [own.before_percent(), own.after_percent(), own.points(), own.noise_points()];
        let totals = [total.points(), total.noise_points()];
        json!({
            "name": function.name,
            "self": numbers,
            "total": totals,
            "beyond": [own.is_beyond_noise(), total.is_beyond_noise()],
        })
    };
    difference.functions().iter().map(row).collect()
}

#[test]
fn the_page_of_a_real_dotnet_process_works_in_a_browser() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("dotnet.html");
    let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-F", "499", "-d", "3", "-o", page.to_str().unwrap()]));
    assert_eq!(run.code(), 0, "{run:?}");
    browse(&["page/dotnet.test.mjs"], folder.path());
}

/// Runs these test scripts on the pages in a folder.
fn browse(scripts: &[&str], pages: &Path) {
    if let Some(missing) = ["node", "chromium"].into_iter().find(|program| !is_there(program)) {
        return profiler_tests::skip_unless_required(&format!("{missing} is missing: cargo xtask setup"));
    }
    let scripts = scripts.iter().map(|script| profiler_tests::file(script));
    let node = Command::new("node").arg("--test").args(scripts).env("PAGES", pages).output().unwrap();
    let said = String::from_utf8_lossy(&node.stdout);
    assert!(node.status.success(), "{said}{}", String::from_utf8_lossy(&node.stderr));
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn the_modules_of_the_page_have_no_type_error() {
    let compiler = profiler_tests::file("../target/readers/node_modules/typescript/bin/tsc");
    if !compiler.exists() {
        return profiler_tests::skip_unless_required(&format!(
            "{} is missing: cargo xtask setup",
            compiler.display()
        ));
    }
    let project = profiler_tests::file("../crates/profile-formats/src/html/page/jsconfig.json");
    let run = run_command(Command::new("node").arg(compiler).arg("--project").arg(project));
    assert_eq!(run.code(), 0, "{}", run.stdout);
}

mod measured {
    use super::*;

    #[test]
    fn large_pages_are_shown_and_stay_fluid() {
        let folder = tempfile::tempdir().unwrap();
        write(&large(1), folder.path(), "large.html");
        write_difference(&large(1), &large(2), folder.path(), "large-difference.html");
        write(&many_lanes(), folder.path(), "many-lanes.html");
        write(&many_events(), folder.path(), "many-runtime-events.html");
        browse(&["page/cost.test.mjs"], folder.path());
    }
}
