//! Backends that behave at random: the ledger against what the backend has read.

use std::{collections::HashMap, time::Duration};

use tokio::time::sleep;

use super::scripted::{Behaviour, Simulation, delivered, message};
use crate::delivery::{options::SpoolOptions, outcome::Outcome};

const MINUTE: Duration = Duration::from_secs(60);

/// Messages of one run of the process.
const MESSAGES: u64 = 60;

fn behaviour(random: &mut fastrand::Rng) -> Behaviour {
    let reason = || "random".to_owned();
    let after = random.bool().then(|| Duration::from_secs(random.u64(..100)));
    match random.u8(..14) {
        0 => Behaviour::Refuse,
        1 => Behaviour::HangAtConnect,
        2 => Behaviour::Hang { reads: random.bool() },
        3 => Behaviour::Close { reads: random.bool() },
        4 => Behaviour::Respond(Outcome::Retry { after, reason: reason() }),
        5 => Behaviour::Respond(Outcome::Rejected(reason())),
        6 => Behaviour::Respond(Outcome::TooLarge(reason())),
        7 => Behaviour::Respond(Outcome::PartlyRejected { profiles: 1, reason: reason() }),
        8 => Behaviour::Respond(Outcome::Ambiguous(reason())),
        _ => delivered(),
    }
}

/// Runs the agent three times on the same spool. Each message has one sample.
async fn check(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let options =
        SpoolOptions { directory: directory.path().to_owned(), max_bytes: random.u64(1..40) * 4096 };
    let (limit_bytes, has_spool) = (random.u64(2_000..20_000), random.bool());
    let mut left = 0;
    for run in 0..3 {
        let mut simulation = Simulation::new(limit_bytes);
        if has_spool {
            simulation = simulation.spool(&options);
        }
        if random.bool() {
            simulation = simulation.max_age(10 * MINUTE);
        }
        let queue = std::sync::Arc::clone(&simulation.queue);
        let recovered = queue.ledger().recovered;
        assert_eq!(recovered, left, "seed {seed}");
        let (mut choices, mut pauses) = (random.fork(), random.fork());
        let mut confirmed = 0;
        let behave = |_| {
            let next = behaviour(&mut choices);
            confirmed += u64::from(matches!(next, Behaviour::Respond(Outcome::Delivered { .. })));
            next
        };
        let scenario = async {
            for index in 0..MESSAGES {
                let pause = Duration::from_millis(pauses.u64(..120_000));
                let start = u32::try_from(index).unwrap() * MINUTE;
                queue.push(message(run * MESSAGES + index, start, 1, pauses.usize(8..6_000)));
                sleep(pause).await;
                let ledger = queue.ledger();
                assert!(ledger.is_exact(), "seed {seed}: {ledger:?}");
                assert!(ledger.queue_bytes <= limit_bytes, "seed {seed}: {ledger:?}");
                assert!(ledger.spool_bytes <= options.max_bytes, "seed {seed}: {ledger:?}");
            }
        };
        simulation.run(behave, scenario).await;
        let ledger = queue.ledger();
        assert!(ledger.is_exact() && ledger.queued == 0, "seed {seed}: {ledger:?}");
        assert_eq!(ledger.sampled, MESSAGES);
        assert_eq!(ledger.delivered, confirmed, "seed {seed}");
        left = ledger.spooled;
        assert!(has_spool || left == 0);
        drop(simulation);
    }
}

#[tokio::test(start_paused = true)]
async fn the_ledger_is_exact_whatever_the_backend_does() {
    for seed in 0..12 {
        check(seed).await;
    }
}

/// A message is read again only after a response that says so.
#[tokio::test(start_paused = true)]
async fn no_message_is_confirmed_twice() {
    for seed in 0..40 {
        let mut simulation = Simulation::new(1 << 20);
        for index in 0..MESSAGES {
            simulation.queue.push(message(index, Duration::ZERO, 1, 100));
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut repeatable = 0;
        let behave = |_| {
            let next = behaviour(&mut random);
            repeatable += u64::from(matches!(next, Behaviour::Respond(Outcome::Retry { .. })));
            next
        };
        simulation.run(behave, sleep(600 * MINUTE)).await;
        let mut reads: HashMap<u64, u64> = HashMap::new();
        for index in simulation.received_indexes() {
            *reads.entry(index).or_default() += 1;
        }
        let repeated: u64 = reads.values().map(|count| count - 1).sum();
        assert!(repeated <= repeatable, "seed {seed}: {repeated} of {repeatable}");
        let ledger = simulation.queue.ledger();
        assert_eq!(ledger.queued, 0, "seed {seed}");
        assert!(ledger.is_exact(), "seed {seed}: {ledger:?}");
    }
}
