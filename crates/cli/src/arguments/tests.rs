//! Tests of the arguments: defaults, conflicts, and the settings that they become.

use profiler::{EventSet, Target};
use profiler_profile_formats::OutputOptions;

use super::*;

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    Arguments::parse(std::iter::once("profiler").chain(line.split_whitespace()).map(OsString::from))
}

fn target(line: &str) -> Target {
    parse(line).unwrap().target.target().unwrap()
}

#[test]
fn the_definition_passes_the_checks_of_clap() {
    Arguments::command().debug_assert();
}

#[test]
fn every_target_has_an_argument() {
    assert_eq!(target("-p 1,2"), Target::Pids(vec![1, 2]));
    assert_eq!(target("--process dotnet"), Target::ProcessName("dotnet".to_owned()));
    assert_eq!(target("-t 3"), Target::Tids(vec![3]));
    assert_eq!(target("-a"), Target::Everything);
    assert_eq!(target("--cgroup /a/b"), Target::Cgroup("/a/b".into()));
    assert_eq!(target("--container abc"), Target::Container("abc".to_owned()));
    let pod = |namespace: Option<&str>, container: Option<&str>| Target::Pod {
        name: "web".to_owned(),
        namespace: namespace.map(str::to_owned),
        container: container.map(str::to_owned),
    };
    assert_eq!(target("--pod web"), pod(None, None));
    assert_eq!(target("--pod web -n shop"), pod(Some("shop"), None));
    let line = "--pod web --namespace shop --pod-container app -e page-faults -c 7";
    assert_eq!(target(line), pod(Some("shop"), Some("app")));
    assert_eq!(target("-F 9 -- ls -l"), Target::Command(vec!["ls".into(), "-l".into()]));
}

#[test]
fn two_targets_are_refused() {
    for line in [
        "-p 1 -a",
        "-t 1 -- ls",
        "--cgroup /a --container b",
        "-p 1 --process a",
        "-a --pod a",
        "-a -n shop",
        "--pod-container app -p 1",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_defaults_equal_those_of_the_library() {
    for line in ["-p 1", "-- ls"] {
        let arguments = parse(line).unwrap();
        let library = Profiler::builder().target(target(line));
        assert_eq!(format!("{:?}", arguments.builder().unwrap()), format!("{library:?}"));
        assert_eq!(arguments.output.options(), OutputOptions::default());
    }
}

#[test]
fn no_children_turns_off_the_default_of_commands() {
    let library = |children| Profiler::builder().target(target("-- ls")).children(children);
    for (line, children) in [("--children -- ls", true), ("--no-children -- ls", false)] {
        let builder = parse(line).unwrap().builder().unwrap();
        assert_eq!(format!("{builder:?}"), format!("{:?}", library(children)));
    }
    assert!(parse("--children --no-children -- ls").is_err());
}

#[test]
fn flags_set_the_settings_of_the_library() {
    let line = "-p 1 -F 999 -C 0-1 --children -U --inlines --lines --raw-names --dotnet-tiers \
                --dotnet-perf-map --debug-dir /d --capture /c --symbol-server microsoft --symbol-server http://s \
                --symbol-cache /s";
    let library = Profiler::builder()
        .target(Target::Pids(vec![1]))
        .frequency_hz(999)
        .cpus([0, 1])
        .children(true)
        .kernel_stacks(false)
        .inlines(true)
        .lines(true)
        .raw_names(true)
        .dotnet_tiers(true)
        .dotnet_perf_map(true)
        .debug_directory("/d")
        .symbol_server("microsoft")
        .symbol_server("http://s")
        .symbol_cache("/s")
        .capture("/c");
    assert_eq!(format!("{:?}", parse(line).unwrap().builder().unwrap()), format!("{library:?}"));
}

#[test]
fn sets_and_providers_of_events_are_requested() {
    let line = "-p 1 --events default,counters --events gc --event-provider Mine:3:5";
    let library = Profiler::builder()
        .target(Target::Pids(vec![1]))
        .runtime_events(EventSet::DEFAULT.iter().copied().chain([EventSet::Counters]))
        .event_provider("Mine:3:5".parse().unwrap());
    assert_eq!(format!("{:?}", parse(line).unwrap().builder().unwrap()), format!("{library:?}"));
    for line in [
        "-p 1 --events gcs",
        "-p 1 --events",
        "-p 1 --event-provider :1",
        "-p 1 --events gc --no-dotnet-events",
        "-p 1 --events gc --capture /c",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_live_view_takes_the_options_of_sampling() {
    let line = "-F 999 --children --inlines --debug-dir /d -C 0 -p 7";
    let Some(Action::Live(live)) = parse(&format!("live --window 5 {line}")).unwrap().action else {
        panic!("not the live view")
    };
    let sampling = parse(line).unwrap().builder().unwrap();
    assert_eq!(format!("{:?}", live.builder().unwrap()), format!("{sampling:?}"));
    assert_eq!(live.window, Duration::from_secs(5));
    for wrong in ["live -p 7 -o x.svg", "live -p 7 --window 11m", "live -p 7 -a"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn global_options_may_precede_a_command_and_sampling_options_may_not() {
    for line in ["-qvv report x", "report x -qvv", "-q report x -vv"] {
        let common = parse(line).unwrap().common;
        assert_eq!((common.quiet, common.verbose), (true, 2), "{line}");
    }
    for line in ["-p 7 report x", "-o x.svg report x", "--focus a top x", "-a doctor"] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
    }
    assert!(parse("-p 7 report x").unwrap_err().to_string().contains("`--pid <PID>` is for sampling"));
}

#[test]
fn the_filter_by_process_has_its_former_name_where_no_target_is_sampled() {
    for command in ["report x", "top x", "diff x y", "replay x"] {
        for option in ["--in-process", "--process"] {
            assert!(parse(&format!("{command} {option} 7")).is_ok(), "{command} {option}");
        }
    }
    for command in ["", "live"] {
        assert!(parse(&format!("{command} -a --in-process 7")).is_ok(), "{command}");
        assert!(parse(&format!("{command} -a --process 7")).is_err(), "{command}");
    }
}

#[test]
fn invalid_values_are_refused() {
    for line in
        ["-p x", "-F -1 -p 1", "-d 0x -p 1", "-C 3-1 -p 1", "--format nope -p 1", "-U -K -p 1", "--nope"]
    {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn other_events_replace_cpu_samples_unless_a_frequency_is_given() {
    let one = || Profiler::builder().target(target("-p 1"));
    for (line, library) in [
        ("-p 1", one()),
        ("-p 1 --wall", one().wall_clock_hz(49).cpu_samples(false)),
        ("-p 1 --wall=19", one().wall_clock_hz(19).cpu_samples(false)),
        ("-p 1 -F 997 --wall=19", one().frequency_hz(997).wall_clock_hz(19)),
        ("-p 1 --off-cpu", one().off_cpu(Duration::from_millis(1), false).cpu_samples(false)),
        ("-p 1 --off-cpu -F 49", one().off_cpu(Duration::from_millis(1), false).frequency_hz(49)),
    ] {
        assert_eq!(
            format!("{:?}", parse(line).unwrap().builder().unwrap()),
            format!("{library:?}"),
            "{line}"
        );
    }
}

#[test]
fn waits_of_at_least_a_millisecond_are_recorded_unless_another_length_is_given() {
    let waiting = || Profiler::builder().target(target("-p 1")).cpu_samples(false);
    for (line, library) in [
        ("-p 1 --off-cpu", waiting().off_cpu(Duration::from_millis(1), false)),
        ("-p 1 --off-cpu --min-block 20us --wakers", waiting().off_cpu(Duration::from_micros(20), true)),
        ("-p 1 --off-cpu --min-block 0", waiting().off_cpu(Duration::ZERO, false)),
        ("-p 1 --io", waiting().io_waits()),
    ] {
        assert_eq!(
            format!("{:?}", parse(line).unwrap().builder().unwrap()),
            format!("{library:?}"),
            "{line}"
        );
    }
    for line in ["-p 1 --wakers", "-p 1 --min-block 1ms", "-p 1 --off-cpu --io"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn events_are_counted_beside_cpu_samples_only_on_request() {
    let event = |name: &str| name.parse::<CountedEvent>().unwrap();
    let library = || Profiler::builder().target(target("-p 1"));
    let is = |line: &str, library: Builder| {
        let builder = parse(line).unwrap().builder().unwrap();
        assert_eq!(format!("{builder:?}"), format!("{library:?}"), "{line}");
    };
    let tenth = event("page-faults").every(NonZeroU64::new(10).unwrap());
    is("-p 1 -e page-faults -c 10", library().cpu_samples(false).counted_event(tenth));
    is("-p 1 -F 99 -e cycles", library().counted_event(event("cycles")));
    is("-p 1 --faults", library().cpu_samples(false).counted_event(event("page-faults")));
    let calls = library().cpu_samples(false).counted_event(event("raw_syscalls:sys_enter"));
    is("-p 1 --syscalls", calls.counted_event(CountedEvent::system_call_time()));
    let bytes = event("uprobe:libc:malloc").weighted_by("arg1");
    is("-p 1 --alloc", library().cpu_samples(false).counted_event(bytes));
    let reads = event("raw_syscalls:sys_enter").only_where("id==0".parse().unwrap());
    is("-p 1 -e raw_syscalls:sys_enter --filter id==0", library().cpu_samples(false).counted_event(reads));
    is("-p 1 --io", library().cpu_samples(false).io_waits());
    is("-p 1 --io -F 99", library().io_waits());
    for wrong in ["-p 1 -c 10", "-p 1 --weight id", "-p 1 -e page-fault", "-p 1 -e page-faults -c 0"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
