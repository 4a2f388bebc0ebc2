//! What was asked of symbol servers, what became of it, and what is on its way: between the thread that names and the
//! one that downloads.

use profiler_elf_symbols::BuildId;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::Download;

/// Debug files that a session asks for. A target that maps files without end, each with a build id of its own, must not
/// make the profiler a flood of requests.
const MAX_REQUESTS: usize = 1024;

/// How often who waits looks whether to go on.
const LOOK_UP_INTERVAL: Duration = Duration::from_millis(50);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// It waits for its turn, or is being downloaded.
    OnTheWay,
    /// The file is in the cache.
    Found,
    /// No server has it.
    NotThere,
    /// A server did not answer as it should, and no other has it.
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
    fetches: HashMap<BuildId, Fetch>,
    waiting: VecDeque<Request>,
    download: Option<Download>,
    has_ended: bool,
}

/// A debug file that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: BuildId,
    /// The module's.
    pub(super) file_name: String,
}

impl Requests {
    pub(super) fn ask(&self, id: &BuildId, file_name: &str) -> Fetch {
        let mut table = self.lock();
        if let Some(fetch) = table.fetches.get(id) {
            return *fetch;
        }
        if table.fetches.len() >= MAX_REQUESTS {
            return Fetch::NotThere;
        }
        table.fetches.insert(id.clone(), Fetch::OnTheWay);
        table.waiting.push_back(Request { id: id.clone(), file_name: file_name.to_owned() });
        self.changed.notify_all();
        Fetch::OnTheWay
    }

    /// The next request; `None` when there will be none.
    pub(super) fn next(&self) -> Option<Request> {
        let mut table = self.lock();
        loop {
            if table.has_ended {
                return None;
            }
            if let Some(request) = table.waiting.pop_front() {
                return Some(request);
            }
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What became of a request.
    pub(super) fn settle(&self, request: &Request, fetch: Fetch) {
        let mut table = self.lock();
        table.fetches.insert(request.id.clone(), fetch);
        table.download = None;
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, until: Instant, may_wait: &dyn Fn() -> bool) {
        let mut table = self.lock();
        while table.fetches.values().any(|fetch| *fetch == Fetch::OnTheWay) && may_wait() {
            let left = until.saturating_duration_since(Instant::now()).min(LOOK_UP_INTERVAL);
            if left.is_zero() {
                return;
            }
            table = self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn set_download(&self, download: Download) {
        self.lock().download = Some(download);
    }

    pub(super) fn download(&self) -> Option<Download> {
        self.lock().download.clone()
    }

    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// No holder leaves the table half changed.
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
    fn a_build_id_is_asked_for_once_and_its_answer_kept() {
        let requests = Requests::default();
        assert_eq!(requests.ask(&id(1), "a.so"), Fetch::OnTheWay);
        assert_eq!(requests.ask(&id(1), "b.so"), Fetch::OnTheWay);
        let request = requests.next().unwrap();
        assert_eq!(request, Request { id: id(1), file_name: "a.so".to_owned() });
        requests.settle(&request, Fetch::NotThere);
        assert_eq!(requests.ask(&id(1), "a.so"), Fetch::NotThere);
        requests.end();
        assert_eq!(requests.next(), None);
    }

    #[test]
    fn a_target_of_countless_build_ids_is_not_asked_for_without_end() {
        let requests = Requests::default();
        let asked = (0..2 * MAX_REQUESTS as u32).map(|number| requests.ask(&id(number), "x"));
        assert_eq!(asked.filter(|fetch| *fetch == Fetch::OnTheWay).count(), MAX_REQUESTS);
    }

    #[test]
    fn waiting_ends_with_the_last_answer() {
        let requests = Requests::default();
        requests.wait(Instant::now() + LONG, &|| true);
        requests.ask(&id(1), "a.so");
        std::thread::scope(|scope| {
            scope.spawn(|| requests.settle(&requests.next().unwrap(), Fetch::Found));
            requests.wait(Instant::now() + LONG, &|| true);
        });
        assert_eq!(requests.ask(&id(1), "a.so"), Fetch::Found);
    }

    #[test]
    fn waiting_ends_in_time_and_when_nobody_wants_to_wait() {
        let requests = Requests::default();
        requests.ask(&id(1), "a.so");
        requests.wait(Instant::now(), &|| true);
        requests.wait(Instant::now() + LONG, &|| false);
        assert_eq!(requests.ask(&id(1), "a.so"), Fetch::OnTheWay);
    }
}
