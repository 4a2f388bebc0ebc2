//! The queue of requested debug files and the status of each, shared by the symbolizer and the download thread.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use profiler_elf_symbols::BuildId;

use super::Download;

/// Requests per session. The limit bounds the load on servers when a target maps files without end, each with another
/// build id.
const MAX_REQUESTS: usize = 1024;

/// Interval at which a waiting thread checks its condition.
const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStatus {
    /// The request is queued, or its file is being downloaded.
    Pending,
    /// The file is in the cache.
    Found,
    /// No server has it.
    NotFound,
    /// A server failed, and no other has the file.
    Failed,
}

/// The requests of a session.
#[derive(Debug, Default)]
pub(super) struct Requests {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    statuses: HashMap<BuildId, FetchStatus>,
    queue: VecDeque<Request>,
    download: Option<Download>,
    is_closed: bool,
}

/// A requested debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: BuildId,
    /// File name of the module.
    pub(super) file_name: String,
}

impl Requests {
    /// Adds a request, unless there is one with this build id or there are too many.
    pub(super) fn enqueue(&self, id: &BuildId, file_name: &str) -> FetchStatus {
        let mut table = self.lock();
        if let Some(status) = table.statuses.get(id) {
            return *status;
        }
        if table.statuses.len() >= MAX_REQUESTS {
            return FetchStatus::NotFound;
        }
        table.statuses.insert(id.clone(), FetchStatus::Pending);
        table.queue.push_back(Request { id: id.clone(), file_name: file_name.to_owned() });
        self.changed.notify_all();
        FetchStatus::Pending
    }

    /// Waits for the next request; `None` when the queue is closed.
    pub(super) fn next(&self) -> Option<Request> {
        let mut table = self.lock();
        loop {
            if table.is_closed {
                return None;
            }
            if let Some(request) = table.queue.pop_front() {
                return Some(request);
            }
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the final status of a request.
    pub(super) fn complete(&self, request: &Request, status: FetchStatus) {
        let mut table = self.lock();
        table.statuses.insert(request.id.clone(), status);
        table.download = None;
        self.changed.notify_all();
    }

    /// Waits until no request is pending, as long as `may_wait` returns true and until the deadline at most.
    pub(super) fn wait(&self, deadline: Instant, may_wait: &dyn Fn() -> bool) {
        let mut table = self.lock();
        while table.statuses.values().any(|status| *status == FetchStatus::Pending) && may_wait() {
            let remaining = deadline.saturating_duration_since(Instant::now()).min(WAIT_CHECK_INTERVAL);
            if remaining.is_zero() {
                return;
            }
            table = self.changed.wait_timeout(table, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn set_download(&self, download: Download) {
        self.lock().download = Some(download);
    }

    pub(super) fn download(&self) -> Option<Download> {
        self.lock().download.clone()
    }

    /// Closes the queue: [`next`](Self::next) returns `None`.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// A poisoned lock is ignored, because every change of the table is a single operation.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn id(number: u32) -> BuildId {
        BuildId::new(&number.to_be_bytes()).unwrap()
    }

    #[test]
    fn a_build_id_is_requested_once_and_its_status_kept() {
        let requests = Requests::default();
        assert_eq!(requests.enqueue(&id(1), "a.so"), FetchStatus::Pending);
        assert_eq!(requests.enqueue(&id(1), "b.so"), FetchStatus::Pending);
        let request = requests.next().unwrap();
        assert_eq!(request, Request { id: id(1), file_name: "a.so".to_owned() });
        requests.complete(&request, FetchStatus::NotFound);
        assert_eq!(requests.enqueue(&id(1), "a.so"), FetchStatus::NotFound);
        requests.close();
        assert_eq!(requests.next(), None);
    }

    #[test]
    fn the_number_of_requests_is_limited() {
        let requests = Requests::default();
        let statuses = (0..2 * MAX_REQUESTS as u32).map(|number| requests.enqueue(&id(number), "x"));
        assert_eq!(statuses.filter(|status| *status == FetchStatus::Pending).count(), MAX_REQUESTS);
    }

    #[test]
    fn waiting_ends_when_the_last_request_is_complete() {
        let requests = Requests::default();
        requests.wait(Instant::now() + LONG, &|| true);
        requests.enqueue(&id(1), "a.so");
        std::thread::scope(|scope| {
            scope.spawn(|| requests.complete(&requests.next().unwrap(), FetchStatus::Found));
            requests.wait(Instant::now() + LONG, &|| true);
        });
        assert_eq!(requests.enqueue(&id(1), "a.so"), FetchStatus::Found);
    }

    #[test]
    fn waiting_ends_at_the_deadline_and_when_it_is_not_permitted() {
        let requests = Requests::default();
        requests.enqueue(&id(1), "a.so");
        requests.wait(Instant::now(), &|| true);
        requests.wait(Instant::now() + LONG, &|| false);
        assert_eq!(requests.enqueue(&id(1), "a.so"), FetchStatus::Pending);
    }
}
