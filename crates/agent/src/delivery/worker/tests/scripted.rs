//! A transport whose backend behaves as a test says, in simulated time.

use std::{
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::super::{Limits, Worker};
use crate::{
    Encoded, Message,
    delivery::{options::SpoolOptions, outcome::Outcome, queue::Queue, spool::Spool, transport::Transport},
};

/// 2026-01-01 UTC.
pub(super) const START: Duration = Duration::from_secs(1_767_225_600);

/// The time limit of a request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// What the backend does with an attempt.
#[derive(Debug)]
pub(super) enum Behaviour {
    /// Refuses the connection.
    Refuse,
    /// Does not accept the connection.
    HangAtConnect,
    /// Reads nothing or the whole request, and does not respond.
    Hang { reads: bool },
    /// Reads nothing or the whole request, and closes the connection.
    Close { reads: bool },
    /// Reads the whole request, and responds.
    Respond(Outcome),
}

pub(super) fn delivered() -> Behaviour {
    Behaviour::Respond(Outcome::Delivered { warning: None })
}

/// What the backend has read: bodies and times.
pub(super) type Received = Arc<Mutex<Vec<(Bytes, Duration)>>>;

/// The transport to the backend.
pub(super) struct Scripted<F> {
    behave: F,
    next: Option<Behaviour>,
    written_bytes: u64,
    start: Instant,
    received: Received,
}

impl<F: FnMut(Duration) -> Behaviour> Transport for Scripted<F> {
    async fn connect(&mut self) -> Result<(), String> {
        let next = (self.behave)(self.start.elapsed());
        match next {
            Behaviour::Refuse => return Err("connection refused".to_owned()),
            Behaviour::HangAtConnect => return future::pending().await,
            _ => self.next = Some(next),
        }
        Ok(())
    }

    async fn send(&mut self, body: Bytes) -> Result<Outcome, String> {
        let next = self.next.take().expect("a connection");
        let reads = match next {
            Behaviour::Hang { reads } | Behaviour::Close { reads } => reads,
            _ => true,
        };
        if reads {
            self.written_bytes += body.len() as u64 + 100;
            self.received.lock().unwrap().push((body, self.start.elapsed()));
        } else {
            self.written_bytes += body.len() as u64 / 2;
        }
        match next {
            Behaviour::Respond(outcome) => Ok(outcome),
            Behaviour::Hang { .. } => future::pending().await,
            _ => Err("connection reset".to_owned()),
        }
    }

    fn close(&mut self) {
        self.next = None;
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

/// A queue, and the worker of it.
pub(super) struct Simulation {
    pub(super) queue: Arc<Queue>,
    pub(super) received: Received,
    limits: Limits,
    spool: Option<Spool>,
    start: Instant,
}

impl Simulation {
    pub(super) fn new(limit_bytes: u64) -> Self {
        let limits = Limits { timeout: TIMEOUT, max_age: None };
        let queue = Arc::new(Queue::new(limit_bytes));
        Self { queue, received: Received::default(), limits, spool: None, start: Instant::now() }
    }

    pub(super) fn max_age(mut self, age: Duration) -> Self {
        self.limits.max_age = Some(age);
        self
    }

    pub(super) fn spool(mut self, options: &SpoolOptions) -> Self {
        self.spool = Some(Spool::open(options, &self.queue).unwrap());
        self
    }

    /// Runs the worker until the end of a scenario.
    pub(super) async fn run(
        &mut self,
        behave: impl FnMut(Duration) -> Behaviour,
        scenario: impl Future<Output = ()>,
    ) {
        let (start, received) = (self.start, Arc::clone(&self.received));
        let transport = Scripted { behave, next: None, written_bytes: 0, start, received };
        let clock = move || START + start.elapsed();
        let worker = Worker::new(transport, clock, Arc::clone(&self.queue), self.spool.take(), self.limits);
        let scenario = async {
            scenario.await;
            self.queue.request_stop();
        };
        tokio::join!(worker.run(), scenario);
        self.queue.end();
    }

    /// The indexes that [`message`] was given, as the backend read them.
    pub(super) fn received_indexes(&self) -> Vec<u64> {
        let received = self.received.lock().unwrap();
        received.iter().map(|(body, _)| u64::from_le_bytes(body[..8].try_into().unwrap())).collect()
    }

    /// When the backend read a message.
    pub(super) fn received_times(&self) -> Vec<Duration> {
        self.received.lock().unwrap().iter().map(|(_, time)| *time).collect()
    }
}

/// A message of a window that starts at a time of the simulation. The body begins with the index.
pub(super) fn message(index: u64, start: Duration, samples: u64, body_bytes: usize) -> Encoded {
    let mut body = index.to_le_bytes().to_vec();
    body.resize(body_bytes.max(8), 0);
    let started_unix_ns = u64::try_from((START + start).as_nanos()).unwrap();
    Encoded { messages: vec![Message { started_unix_ns, samples, body }], too_large: 0 }
}
