//! The queue of requested debug files and the status of each, shared by the symbolizer and the download thread.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use profiler_elf_symbols::BuildId;

use profiler_processes::tenants::{Tenant, TenantShares};

/// The time after which the limits begin anew: a session can last for weeks.
pub(super) const BUDGET_PERIOD: Duration = Duration::from_secs(3600);

/// Requests per [`BUDGET_PERIOD`], shared out by tenant. The limit bounds the load on servers when a target maps files
/// without end, each with another build id.
const MAX_REQUESTS: usize = 2048;

/// Interval at which a waiting thread checks its condition.
const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The progress of a download.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// File name of the module without symbols. The target controls this name.
    pub file_name: String,
    /// Bytes of the debug file that were received.
    pub received_bytes: u64,
    /// Size of the debug file, when the response contains it.
    pub total_bytes: Option<u64>,
}

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

#[derive(Debug)]
struct Table {
    statuses: HashMap<BuildId, Status>,
    shares: TenantShares,
    queue: VecDeque<Request>,
    /// The number of requests that were taken from the queue, and this number at the last turn of each tenant.
    turns: u64,
    last_turns: HashMap<Tenant, u64>,
    download: Option<Download>,
    is_closed: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            statuses: HashMap::new(),
            shares: TenantShares::new(MAX_REQUESTS),
            queue: VecDeque::new(),
            turns: 0,
            last_turns: HashMap::new(),
            download: None,
            is_closed: false,
        }
    }
}

impl Table {
    fn add(&mut self, now: Instant, request: Request) {
        let status = Status { fetch: FetchStatus::Pending, requested: now, tenant: request.tenant };
        self.shares.spend(request.tenant, 1);
        self.statuses.insert(request.id.clone(), status);
        self.queue.push_back(request);
    }

    /// Removes the statuses of requests that may be made again.
    fn remove_expired(&mut self, now: Instant) {
        let shares = &mut self.shares;
        self.statuses.retain(|_, status| {
            let is_expired = status.is_expired(now);
            if is_expired {
                shares.refund(status.tenant, 1);
            }
            !is_expired
        });
    }

    /// Takes the oldest request of the tenant whose last turn is the longest ago.
    fn take(&mut self) -> Option<Request> {
        let last_turn = |request: &Request| self.last_turns.get(&request.tenant).copied().unwrap_or(0);
        let (index, _) = self.queue.iter().enumerate().min_by_key(|(_, request)| last_turn(request))?;
        let request = self.queue.remove(index)?;
        self.turns += 1;
        self.last_turns.insert(request.tenant, self.turns);
        if self.queue.is_empty() {
            self.last_turns.clear();
        }
        Some(request)
    }
}

/// The status of a request, when it was made, and for which tenant.
#[derive(Clone, Copy, Debug)]
struct Status {
    fetch: FetchStatus,
    requested: Instant,
    tenant: Tenant,
}

impl Status {
    /// Whether the file may be requested again.
    fn is_expired(&self, now: Instant) -> bool {
        self.fetch != FetchStatus::Pending && now.saturating_duration_since(self.requested) >= BUDGET_PERIOD
    }
}

/// A requested debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: BuildId,
    /// File name of the module.
    pub(super) file_name: String,
    pub(super) tenant: Tenant,
}

impl Requests {
    /// Adds a request, unless there is one with this build id or there are too many of the tenant in the period.
    pub(super) fn enqueue(&self, request: Request) -> FetchStatus {
        self.enqueue_at(Instant::now(), request)
    }

    fn enqueue_at(&self, now: Instant, request: Request) -> FetchStatus {
        let mut table = self.lock();
        let known = table.statuses.get(&request.id).copied();
        if let Some(status) = known.filter(|status| !status.is_expired(now)) {
            return status.fetch;
        }
        if known.is_some() || table.shares.left(request.tenant) == 0 {
            table.remove_expired(now);
        }
        if table.shares.left(request.tenant) == 0 {
            return FetchStatus::NotFound;
        }
        table.add(now, request);
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
            if let Some(request) = table.take() {
                return Some(request);
            }
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the final status of a request.
    pub(super) fn complete(&self, request: &Request, status: FetchStatus) {
        let mut table = self.lock();
        if let Some(known) = table.statuses.get_mut(&request.id) {
            known.fetch = status;
        }
        table.download = None;
        self.changed.notify_all();
    }

    /// Waits until no request is pending, as long as `may_wait` returns true and until the deadline at most.
    pub(super) fn wait(&self, deadline: Instant, may_wait: &dyn Fn() -> bool) {
        let mut table = self.lock();
        while table.statuses.values().any(|status| status.fetch == FetchStatus::Pending) && may_wait() {
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
    use profiler_processes::tenants::testing::two_tenants;

    const LONG: Duration = Duration::from_secs(60);

    fn request_of(tenant: Tenant, number: u32) -> Request {
        let id = BuildId::new(&number.to_be_bytes()).unwrap();
        Request { id, file_name: format!("{number}.so"), tenant }
    }

    fn request(number: u32) -> Request {
        request_of(None, number)
    }

    #[test]
    fn a_build_id_is_requested_once_and_its_status_kept() {
        let requests = Requests::default();
        assert_eq!(requests.enqueue(request(1)), FetchStatus::Pending);
        assert_eq!(
            requests.enqueue(Request { file_name: "b.so".to_owned(), ..request(1) }),
            FetchStatus::Pending
        );
        let first = requests.next().unwrap();
        assert_eq!(first, request(1));
        requests.complete(&first, FetchStatus::NotFound);
        assert_eq!(requests.enqueue(request(1)), FetchStatus::NotFound);
        requests.close();
        assert_eq!(requests.next(), None);
    }

    #[test]
    fn a_tenant_that_requests_without_end_leaves_requests_for_others() {
        let [hostile, honest] = two_tenants();
        let requests = Requests::default();
        let made = |tenant, first: u32| {
            let numbers = first..first + 2 * MAX_REQUESTS as u32;
            let statuses = numbers.map(|number| requests.enqueue(request_of(tenant, number)));
            statuses.filter(|status| *status == FetchStatus::Pending).count()
        };
        assert_eq!(made(hostile, 0), MAX_REQUESTS / 2);
        assert_eq!(made(honest, 1 << 20), MAX_REQUESTS / 4);
    }

    #[test]
    fn tenants_take_turns() {
        let [hostile, honest] = two_tenants();
        let requests = Requests::default();
        for number in 0..100 {
            requests.enqueue(request_of(hostile, number));
        }
        for number in 100..102 {
            requests.enqueue(request_of(honest, number));
        }
        let order: Vec<_> = (0..5).map(|_| requests.next().unwrap().tenant).collect();
        assert_eq!(order, [hostile, honest, hostile, honest, hostile]);
    }

    #[test]
    fn in_the_next_period_files_are_requested_again_and_others_may_be() {
        const MAX_OF_TENANT: u32 = MAX_REQUESTS as u32 / 2;
        let (requests, now) = (Requests::default(), Instant::now());
        for number in 0..MAX_OF_TENANT {
            assert_eq!(requests.enqueue_at(now, request(number)), FetchStatus::Pending);
            requests.complete(&requests.next().unwrap(), FetchStatus::Failed);
        }
        let other = request(MAX_OF_TENANT);
        assert_eq!(requests.enqueue_at(now + BUDGET_PERIOD / 2, other.clone()), FetchStatus::NotFound);
        assert_eq!(requests.enqueue_at(now + BUDGET_PERIOD / 2, request(1)), FetchStatus::Failed);
        for again in [other, request(1)] {
            assert_eq!(requests.enqueue_at(now + BUDGET_PERIOD, again), FetchStatus::Pending);
        }
        assert_eq!(requests.lock().statuses.len(), 2);
    }

    #[test]
    fn waiting_ends_when_the_last_request_is_complete() {
        let requests = Requests::default();
        requests.wait(Instant::now() + LONG, &|| true);
        requests.enqueue(request(1));
        std::thread::scope(|scope| {
            scope.spawn(|| requests.complete(&requests.next().unwrap(), FetchStatus::Found));
            requests.wait(Instant::now() + LONG, &|| true);
        });
        assert_eq!(requests.enqueue(request(1)), FetchStatus::Found);
    }

    #[test]
    fn waiting_ends_at_the_deadline_and_when_it_is_not_permitted() {
        let requests = Requests::default();
        requests.enqueue(request(1));
        requests.wait(Instant::now(), &|| true);
        requests.wait(Instant::now() + LONG, &|| false);
        assert_eq!(requests.enqueue(request(1)), FetchStatus::Pending);
    }
}
