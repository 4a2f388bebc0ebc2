//! Tests of the worker in simulated time: what it repeats, when, and the ledger.

mod random;
mod scripted;

use std::{ops::Range, sync::Arc, time::Duration};

use tokio::time::sleep;

use self::scripted::{Behaviour, Simulation, TIMEOUT, delivered, message};
use crate::delivery::{
    DeliveryLedger, DroppedSamples, options::SpoolOptions, outcome::Outcome, queue::Queue,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The queue's limit in these tests, and the size of a window.
const LIMIT_BYTES: u64 = 6 << 20;
const WINDOW_BYTES: usize = 300 << 10;

/// A window of 100 samples at the end of each of these minutes, with the ledger and the memory checked at each.
async fn push_windows(queue: &Queue, minutes: Range<u32>) {
    for minute in minutes {
        sleep(MINUTE).await;
        queue.push(message(minute.into(), minute * MINUTE, 100, WINDOW_BYTES));
        let ledger = queue.ledger();
        assert!(ledger.is_exact(), "{ledger:?}");
        assert!(ledger.queue_bytes <= LIMIT_BYTES, "{ledger:?}");
    }
}

fn until(end: Duration) -> impl FnMut(Duration) -> Behaviour {
    move |time| if time < end { Behaviour::Refuse } else { delivered() }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_costs_what_exceeds_the_memory() {
    let mut simulation = Simulation::new(LIMIT_BYTES);
    let queue = Arc::clone(&simulation.queue);
    let scenario = async {
        push_windows(&queue, 0..80).await;
        sleep(5 * MINUTE).await;
    };
    simulation.run(until(HOUR), scenario).await;
    let ledger = simulation.queue.ledger();
    assert!(ledger.is_exact() && ledger.queued == 0, "{ledger:?}");
    let in_memory = LIMIT_BYTES / WINDOW_BYTES as u64 * 100;
    assert_eq!(ledger.sampled, 8000);
    // The windows of the outage less those in memory, and up to two more of the last back-off.
    let dropped = ledger.dropped.outage;
    assert!((5900 - in_memory..=6100 - in_memory + 200).contains(&dropped), "{ledger:?}");
    assert_eq!(ledger.delivered + dropped, 8000);
    let indexes = simulation.received_indexes();
    assert!(indexes.is_sorted() && indexes.last() == Some(&79), "{indexes:?}");
    // An attempt a minute, not more.
    assert!((40..=140).contains(&ledger.requests), "{ledger:?}");
}

#[tokio::test(start_paused = true)]
async fn with_a_spool_an_outage_of_an_hour_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let options = SpoolOptions { directory: directory.path().to_owned(), max_bytes: 64 << 20 };
    let mut simulation = Simulation::new(LIMIT_BYTES).spool(&options);
    let queue = Arc::clone(&simulation.queue);
    let scenario = async {
        push_windows(&queue, 0..30).await;
        let ledger = queue.ledger();
        assert!(ledger.spooled >= 2900 && ledger.queue_bytes <= WINDOW_BYTES as u64, "{ledger:?}");
        push_windows(&queue, 30..80).await;
        sleep(5 * MINUTE).await;
    };
    simulation.run(until(HOUR), scenario).await;
    let ledger = simulation.queue.ledger();
    let expected = (8000, 8000, DroppedSamples::default(), 0, 0);
    assert_eq!(
        (ledger.sampled, ledger.delivered, ledger.dropped, ledger.spooled, ledger.spool_bytes),
        expected
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_became_too_old_in_an_outage_is_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let options = SpoolOptions { directory: directory.path().to_owned(), max_bytes: 64 << 20 };
    let mut simulation = Simulation::new(LIMIT_BYTES).max_age(HOUR).spool(&options);
    let queue = Arc::clone(&simulation.queue);
    let scenario = async {
        push_windows(&queue, 0..120).await;
        sleep(5 * MINUTE).await;
    };
    simulation.run(until(HOUR + HOUR / 2), scenario).await;
    let ledger = simulation.queue.ledger();
    assert!(ledger.is_exact() && ledger.queued + ledger.spooled == 0, "{ledger:?}");
    assert!((3000..=3300).contains(&ledger.dropped.too_old), "{ledger:?}");
    assert_eq!(ledger.delivered + ledger.dropped.too_old, 12_000);
    let received = simulation.received_times().into_iter().zip(simulation.received_indexes());
    for (time, index) in received {
        assert!(time <= u32::try_from(index).unwrap() * MINUTE + HOUR, "{index} at {time:?}");
    }
}

/// The ledger after one message, with 7 samples, to a backend that behaves so and then accepts everything.
async fn ledger_after(behaviour: Behaviour) -> (DeliveryLedger, usize, Option<String>) {
    let mut simulation = Simulation::new(LIMIT_BYTES);
    simulation.queue.push(message(0, Duration::ZERO, 7, 1000));
    let mut first = Some(behaviour);
    let behave = move |_| first.take().unwrap_or_else(delivered);
    simulation.run(behave, sleep(HOUR)).await;
    let ledger = simulation.queue.ledger();
    assert!(ledger.is_exact() && ledger.queued == 0, "{ledger:?}");
    (ledger, simulation.received_indexes().len(), simulation.queue.health().last_error)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_written_is_not_repeated() {
    for behaviour in [
        Behaviour::Hang { reads: true },
        Behaviour::Close { reads: true },
        Behaviour::Respond(Outcome::Ambiguous("cut".to_owned())),
        Behaviour::Respond(Outcome::PartlyRejected { profiles: 2, reason: "some".to_owned() }),
    ] {
        let text = format!("{behaviour:?}");
        let (ledger, received, error) = ledger_after(behaviour).await;
        assert_eq!((ledger.ambiguous, received, ledger.requests), (7, 1, 1), "{text}");
        assert!(error.is_some(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_backend_does_not_have_is_repeated() {
    for behaviour in [
        Behaviour::Refuse,
        Behaviour::HangAtConnect,
        Behaviour::Hang { reads: false },
        Behaviour::Close { reads: false },
        Behaviour::Respond(Outcome::Retry { after: None, reason: "503".to_owned() }),
    ] {
        let text = format!("{behaviour:?}");
        let (ledger, _, error) = ledger_after(behaviour).await;
        assert_eq!((ledger.delivered, ledger.requests, ledger.retries), (7, 2, 1), "{text}");
        assert!(error.is_some(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_not_repeated() {
    let (ledger, received, _) = ledger_after(Behaviour::Respond(Outcome::Rejected("400".to_owned()))).await;
    assert_eq!((ledger.dropped.rejected, received), (7, 1));
    let (ledger, received, _) = ledger_after(Behaviour::Respond(Outcome::TooLarge("413".to_owned()))).await;
    assert_eq!((ledger.dropped.too_large, received), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_backend_asks_for_is_waited() {
    let mut simulation = Simulation::new(LIMIT_BYTES);
    simulation.queue.push(message(0, Duration::ZERO, 7, 1000));
    let retry = || Outcome::Retry { after: Some(120 * SECOND), reason: "429".to_owned() };
    let mut responses = vec![retry(), retry()];
    let behave = move |_| responses.pop().map_or_else(delivered, Behaviour::Respond);
    simulation.run(behave, sleep(HOUR)).await;
    let times = simulation.received_times();
    assert_eq!(times.len(), 3);
    for pair in times.windows(2) {
        let waited = pair[1] - pair[0];
        assert!(120 * SECOND <= waited && waited < 123 * SECOND, "{times:?}");
    }
    assert_eq!(simulation.queue.ledger().delivered, 7);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_costs_one_message_for_each_delay() {
    let mut simulation = Simulation::new(LIMIT_BYTES);
    for index in 0..60 {
        simulation.queue.push(message(index, Duration::ZERO, 1, 1000));
    }
    simulation.run(|_| Behaviour::Hang { reads: true }, sleep(10 * MINUTE)).await;
    let ledger = simulation.queue.ledger();
    assert!(ledger.is_exact(), "{ledger:?}");
    assert!((8..25).contains(&ledger.ambiguous), "{ledger:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_agent_stops_the_current_request_is_ambiguous_and_the_rest_is_spooled() {
    let directory = tempfile::tempdir().unwrap();
    let options = SpoolOptions { directory: directory.path().to_owned(), max_bytes: 1 << 20 };
    for (reads, ambiguous) in [(true, 1), (false, 0)] {
        let mut simulation = Simulation::new(LIMIT_BYTES).spool(&options);
        for index in 0..3 {
            simulation.queue.push(message(index, Duration::ZERO, 1, 1000));
        }
        simulation.run(|_| Behaviour::Hang { reads }, sleep(TIMEOUT / 2)).await;
        let ledger = simulation.queue.ledger();
        assert!(ledger.is_exact(), "{ledger:?}");
        assert_eq!((ledger.ambiguous, ledger.spooled, ledger.queued), (ambiguous, 3 - ambiguous, 0));

        let mut restarted = Simulation::new(LIMIT_BYTES).spool(&options);
        restarted.run(|_| delivered(), sleep(SECOND)).await;
        let ledger = restarted.queue.ledger();
        assert_eq!((ledger.recovered, ledger.delivered), (3 - ambiguous, 3 - ambiguous));
        assert!(ledger.is_exact(), "{ledger:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_spool_what_is_in_memory_at_the_end_is_counted() {
    let mut simulation = Simulation::new(LIMIT_BYTES);
    simulation.queue.push(message(0, Duration::ZERO, 7, 1000));
    simulation.run(|_| Behaviour::Refuse, sleep(SECOND)).await;
    let ledger = simulation.queue.ledger();
    assert_eq!((ledger.dropped.outage, ledger.queued), (7, 0));
    assert!(ledger.is_exact(), "{ledger:?}");
}

#[tokio::test(start_paused = true)]
async fn damaged_files_are_counted_and_the_others_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let options = SpoolOptions { directory: directory.path().to_owned(), max_bytes: 1 << 20 };
    let mut simulation = Simulation::new(LIMIT_BYTES).spool(&options);
    for index in 0..3 {
        simulation.queue.push(message(index, Duration::ZERO, 1 << index, 1000));
    }
    let damage_then_accept = {
        let path = directory.path().to_owned();
        move |time| {
            if time < MINUTE {
                return Behaviour::Refuse;
            }
            let second = path.join(format!("{:020}.message", 1));
            if let Ok(mut bytes) = std::fs::read(&second) {
                bytes[500] = 1;
                std::fs::write(&second, bytes).unwrap();
            }
            delivered()
        }
    };
    simulation.run(damage_then_accept, sleep(10 * MINUTE)).await;
    let ledger = simulation.queue.ledger();
    assert!(ledger.is_exact(), "{ledger:?}");
    assert_eq!((ledger.delivered, ledger.dropped.outage, ledger.damaged_spool_files), (5, 2, 1));
    assert_eq!(simulation.received_indexes(), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn messages_in_memory_do_not_wait_for_a_spool_that_fails() {
    let directory = tempfile::tempdir().unwrap();
    let options = SpoolOptions { directory: directory.path().to_owned(), max_bytes: 4096 };
    let mut simulation = Simulation::new(LIMIT_BYTES).spool(&options);
    let queue = Arc::clone(&simulation.queue);
    let obstacle = directory.path().join(format!("{:020}.sending", 0));
    let scenario = async {
        queue.push(message(0, Duration::ZERO, 1, 1000));
        sleep(MINUTE / 2).await;
        assert_eq!(queue.ledger().spooled, 1);
        // The file of the message cannot be renamed to it.
        std::fs::create_dir(&obstacle).unwrap();
        // It is larger than the spool.
        queue.push(message(1, Duration::ZERO, 2, 5000));
        sleep(10 * MINUTE).await;
        let (ledger, health) = (queue.ledger(), queue.health());
        assert_eq!((ledger.delivered, ledger.spooled, ledger.queued), (2, 1, 0), "{ledger:?}");
        assert!(health.spool_error.unwrap().contains("failed to read"), "{ledger:?}");
        std::fs::remove_dir(&obstacle).unwrap();
        sleep(10 * MINUTE).await;
    };
    simulation.run(until(MINUTE), scenario).await;
    let ledger = queue.ledger();
    assert!(ledger.is_exact() && ledger.delivered == 3, "{ledger:?}");
}
