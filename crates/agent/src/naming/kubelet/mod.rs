//! Labels and owners of pods, from the kubelet of the node.
//!
//! The kubelet lists the pods of its node at `/pods` (`pkg/kubelet/server/server.go` of Kubernetes). The service account of
//! the agent needs the permission `get` on `nodes/pods`, before Kubernetes 1.33 on `nodes/proxy`.

mod client;
mod pods;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use self::client::Client;
#[cfg(fuzzing)]
pub use self::pods::check_pod_list;
pub(super) use self::pods::{Owner, Pod, Pods};

/// The time between two requests. A pod that is started has its labels within one window.
const INTERVAL: Duration = Duration::from_secs(15);

/// The files of a pod's service account (<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>).
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How the kubelet is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    /// The URL without the path: `https://NODE:10250`.
    pub url: String,
    /// The file with a bearer token: `/var/run/secrets/kubernetes.io/serviceaccount/token`.
    pub token_file: Option<PathBuf>,
    /// The file with the certificates of the authorities that sign the kubelet's certificate; those of Mozilla where it is not
    /// given.
    pub ca_file: Option<PathBuf>,
}

impl KubeletOptions {
    /// A kubelet that is asked with the service account of this pod, where there is one.
    #[must_use]
    pub fn with_service_account(url: impl Into<String>) -> Self {
        let file = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
        Self { url: url.into(), token_file: file(TOKEN_FILE), ca_file: file(CA_FILE) }
    }
}

/// Why the pods are unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    /// A token would be sent without encryption.
    #[error("the kubelet's URL `{url}` is not supported: give `https://NODE:10250`")]
    Url {
        /// The URL.
        url: String,
    },
    /// A file cannot be read.
    #[error("failed to read `{}`: {source}: mount the service account of the pod", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has no certificate.
    #[error("`{}` has no certificate: give a file in PEM format", .path.display())]
    NoCertificate {
        /// The path.
        path: PathBuf,
    },
    /// The thread cannot be started.
    #[error("failed to start the thread that asks the kubelet: {0}: raise the limit on threads")]
    Thread(io::Error),
    /// No response, or no list of pods.
    #[error("failed to list the pods of the kubelet: {reason}: check its URL and certificate")]
    Request {
        /// The cause.
        reason: String,
    },
    /// The kubelet refused.
    #[error(
        "failed to list the pods of the kubelet: it answers with status {status}: grant `get` on `nodes/pods` to the service \
         account"
    )]
    Status {
        /// The HTTP status.
        status: u16,
    },
}

/// Asks the kubelet for its pods, on a thread of its own.
#[derive(Debug)]
pub struct Kubelet {
    pods: SharedPods,
    /// Ends the thread when it is dropped.
    _stop: Sender<()>,
}

type SharedPods = Arc<Mutex<Arc<Pods>>>;

impl Kubelet {
    /// Starts the thread. Failed requests are logged and repeated; the names of pods then come from the container runtime
    /// alone.
    ///
    /// # Errors
    /// When the URL is not supported, a certificate cannot be read, or the thread cannot be started.
    pub fn start(options: KubeletOptions) -> Result<Self, KubeletError> {
        let client = Client::new(options)?;
        let pods = SharedPods::default();
        let (stop, stopped) = mpsc::channel();
        let of_thread = Arc::clone(&pods);
        let thread = thread::Builder::new().name("kubelet".to_owned());
        thread.spawn(move || refresh(&client, &of_thread, &stopped)).map_err(KubeletError::Thread)?;
        Ok(Self { pods, _stop: stop })
    }

    /// The pods of the last successful request.
    pub(super) fn pods(&self) -> Arc<Pods> {
        Arc::clone(&self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Requests the pods at once and then after each interval, until the sender of `stopped` is dropped.
fn refresh(client: &Client, pods: &SharedPods, stopped: &Receiver<()>) {
    let mut has_failed = false;
    loop {
        match client.pods() {
            Ok(current) => {
                *pods.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
                has_failed = false;
            }
            Err(error) => {
                if !has_failed {
                    log::warn!("{error}");
                }
                has_failed = true;
            }
        }
        if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// A kubelet that has answered once with a list of pods.
    pub(crate) fn answered(list: &str) -> Kubelet {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(KubeletOptions { url, token_file: None, ca_file: None }).unwrap();
        let pods = SharedPods::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", list.len());
                stream.write_all(format!("{head}{list}").as_bytes()).unwrap();
            });
            refresh(&client, &pods, &stopped());
        });
        Kubelet { pods, _stop: mpsc::channel().0 }
    }

    /// A receiver whose sender is dropped: for one request.
    fn stopped() -> Receiver<()> {
        mpsc::channel().1
    }

    #[test]
    fn a_failed_request_keeps_the_pods() {
        let kubelet = answered(r#"{"items": [{"metadata": {"uid": "u", "labels": {"app": "web"}}}]}"#);
        let options =
            KubeletOptions { url: "http://127.0.0.1:1".to_owned(), token_file: None, ca_file: None };
        refresh(&Client::new(options).unwrap(), &kubelet.pods, &stopped());
        assert_eq!(kubelet.pods().get("u").unwrap().service.as_deref(), Some("web"));
    }
}
