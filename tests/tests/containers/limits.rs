//! Tests the measures of triggers in containers with limits of CPU time and memory.

use std::{
    fs,
    time::{Duration, Instant},
};

use profiler_processes::Pid;
use profiler_tests::{measure_alone, run_beside_others, wait_until};
use profiler_triggers::{Condition, Evaluator, Measure, ProcessMeasures, Values};

use crate::{container::Container, container_builder::ContainerBuilder};

const MIB: u64 = 1 << 20;

/// Reads the measures of a condition over an interval.
fn values(container: &Container, condition: &Condition, interval: Duration) -> Values {
    let mut process = ProcessMeasures::open(Pid(container.pid())).unwrap();
    let (measures, mut values) = (condition.measures(), Values::default());
    let began = Instant::now();
    process.read(&measures, 0, &mut values);
    let elapsed = wait_until("the end of the interval", || {
        let elapsed = began.elapsed();
        (elapsed >= interval).then_some(elapsed)
    });
    process.read(&measures, u64::try_from(elapsed.as_nanos()).unwrap(), &mut values);
    values
}

#[test]
fn the_memory_of_a_container_is_a_share_of_its_limit() {
    let Some(_lock) = run_beside_others() else { return };
    let file_bytes = fs::metadata("/bin/busybox").unwrap().len();
    // A file in `/tmp` is memory of the cgroup.
    let script = "for copy in 1 2 3 4 5 6 7 8; do cat /bin/busybox; done >/tmp/file; echo ready $$; exec cat >/tmp/end";
    let builder = ContainerBuilder::new(&["sh", "-c", script]);
    let container = builder.memory_limit_bytes(8 * file_bytes + 32 * MIB).start();
    let condition = "memory > 0".parse().unwrap();
    let share = values(&container, &condition, Duration::ZERO).get(&Measure::Memory).unwrap();
    let of_file = 8 * file_bytes;
    let least = of_file as f64 / (of_file + 32 * MIB) as f64;
    assert!((least..least + 0.5 * (1.0 - least)).contains(&share), "{share}, the file alone has {least}");
}

mod measured {
    use super::*;

    /// Some periods of a quota.
    const INTERVAL: Duration = Duration::from_secs(2);

    #[test]
    fn a_busy_container_uses_its_cpu_quota_and_is_throttled() {
        let Some(_lock) = measure_alone() else { return };
        let container = ContainerBuilder::workload("shares-static", &["300"]).cpu_quota_percent(20).start();
        let condition = "cpu < 50% and cpu-of-quota > 90% and throttled > 40%".parse().unwrap();
        let values = values(&container, &condition, INTERVAL);
        let [cpu, of_quota, throttled] = [Measure::Cpu, Measure::CpuOfQuota, Measure::Throttled]
            .map(|measure| values.get(&measure).unwrap_or_else(|| panic!("{}", condition.describe(&values))));
        assert!((0.17..0.23).contains(&cpu), "{}", condition.describe(&values));
        assert!((of_quota - cpu / 0.2).abs() < 0.1, "{}", condition.describe(&values));
        // It is throttled for the rest of each period. On a busy machine it uses the quota up later, because it waits for a
        // CPU before.
        assert!((0.4..0.9).contains(&throttled), "{}", condition.describe(&values));
        assert!(Evaluator::new(condition).apply(0, &values).is_some());
    }
}
