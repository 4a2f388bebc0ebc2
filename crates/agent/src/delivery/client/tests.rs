//! A thousand senders and one server.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{net::TcpListener, task::LocalSet, time::sleep};

use super::Client;
use crate::{
    Encoded, Message,
    delivery::{
        DeliveryOptions, Destination,
        queue::Queue,
        unix_time,
        worker::{Limits, Worker},
    },
};

const SENDERS: u64 = 1000;

/// Each sends two messages of this size.
const BODY_BYTES: usize = 10_000;

/// Refuses the first requests, and counts the samples of the others: the first byte of the body.
async fn respond(
    request: Request<Incoming>,
    requests: &AtomicU64,
    samples: &AtomicU64,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::default());
    if requests.fetch_add(1, Ordering::Relaxed) < SENDERS / 2 {
        *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
    } else if body.len() == BODY_BYTES {
        samples.fetch_add(body[0].into(), Ordering::Relaxed);
    }
    Ok(response)
}

async fn serve(listener: TcpListener, requests: Arc<AtomicU64>, samples: Arc<AtomicU64>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (requests, samples) = (Arc::clone(&requests), Arc::clone(&samples));
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| respond(request, &requests, &samples));
            // A client closes its connection when its queue is empty.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn start_sender(url: &str, queue: &Arc<Queue>) {
    let options = DeliveryOptions {
        destination: Destination::OtlpHttp { url: url.to_owned() },
        headers: Vec::new(),
        bearer_token_file: None,
        ca_file: None,
        spool: None,
        timeout: Duration::from_secs(60),
    };
    let limits = Limits { timeout: options.timeout, max_age: None };
    let worker = Worker::new(Client::new(&options).unwrap(), unix_time, Arc::clone(queue), None, limits);
    tokio::task::spawn_local(worker.run());
}

#[tokio::test]
async fn a_thousand_senders_deliver_each_sample_once() {
    // Both ends of each connection are in this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (requests, samples) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (all_requests, all_samples) = (Arc::clone(&requests), Arc::clone(&samples));
    let start = Instant::now();
    let run = async {
        tokio::task::spawn_local(serve(listener, requests, samples));
        let queues: Vec<_> = (0..SENDERS).map(|_| Arc::new(Queue::new(1 << 20))).collect();
        for queue in &queues {
            start_sender(&url, queue);
            for _ in 0..2 {
                let message = Message { started_unix_ns: 0, samples: 3, body: vec![3; BODY_BYTES] };
                queue.push(Encoded { messages: vec![message], too_large: 0 });
            }
        }
        while queues.iter().any(|queue| queue.ledger().queued > 0) {
            assert!(start.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(20)).await;
        }
        let ledgers: Vec<_> = queues.iter().map(|queue| queue.ledger()).collect();
        assert!(ledgers.iter().all(|ledger| ledger.is_exact() && ledger.delivered == 6));
        let sum: u64 = ledgers.iter().map(|ledger| ledger.requests).sum();
        assert_eq!(sum, all_requests.load(Ordering::Relaxed));
    };
    LocalSet::new().run_until(run).await;
    assert_eq!(all_samples.load(Ordering::Relaxed), 6 * SENDERS);
    println!("{:?}, {} requests", start.elapsed(), all_requests.load(Ordering::Relaxed));
}
