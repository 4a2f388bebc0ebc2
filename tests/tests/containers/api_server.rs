//! An API server of Kubernetes for kubectl: one pod, and the pods that kubectl creates, in memory.

use std::{
    io::{self, BufReader, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use profiler_tests::{LoopbackServer, ReceivedRequest};
use serde_json::{Value, json};

/// What the server adds to `generateName`.
pub(crate) const SUFFIX: &str = "x7c2p";

/// What the server responds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The only pod.
    pub(crate) pod: Value,
    /// The status of a created pod at each request for it; the last one remains.
    pub(crate) statuses: Vec<Value>,
    /// Why pods are not created.
    pub(crate) refusal: Option<&'static str>,
    /// The log of a created pod.
    pub(crate) log: &'static str,
}

/// What clients did.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// `METHOD PATH`, without the parameters.
    pub(crate) requests: Vec<String>,
    /// The pods that were created.
    pub(crate) created: Vec<Value>,
    statuses_sent: usize,
}

/// A running server. Dropping it stops it.
pub(crate) struct ApiServer {
    server: LoopbackServer,
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Cluster,
    history: Mutex<History>,
}

impl ApiServer {
    pub(crate) fn start(cluster: Cluster) -> Self {
        let shared = Arc::new(Shared { cluster, history: Mutex::default() });
        let served = Arc::clone(&shared);
        let server = LoopbackServer::start("127.0.0.1:0", move |stream| respond(stream, &served));
        Self { server, shared }
    }

    pub(crate) fn history(&self) -> History {
        self.shared.history.lock().unwrap().clone()
    }

    /// A configuration for kubectl, with a namespace.
    pub(crate) fn kubeconfig(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": self.server.url()}}],
            "users": [{"name": "tests", "user": {}}],
            "contexts": [{
                "name": "tests",
                "context": {"cluster": "tests", "user": "tests", "namespace": namespace},
            }],
            "current-context": "tests",
        })
    }
}

fn respond(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(received) = ReceivedRequest::read(&mut BufReader::new(stream))? else { return Ok(()) };
    let ReceivedRequest { method, path, body, .. } = received;
    let request = format!("{method} {}", path.split('?').next().unwrap_or_default());
    let mut history = shared.history.lock().unwrap();
    history.requests.push(request.clone());
    let (status, kind, content) = match response(&request, &body, &shared.cluster, &mut history) {
        Response::Object(object) => (200, "application/json", object.to_string()),
        Response::Text(text) => (200, "text/plain", text.to_owned()),
        Response::Error(code, reason, message) => {
            (code, "application/json", error(code, reason, &message).to_string())
        }
    };
    let length = content.len();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(content.as_bytes())
}

enum Response {
    Object(Value),
    Text(&'static str),
    /// Status code, reason and message.
    Error(u16, &'static str, String),
}

fn response(request: &str, body: &[u8], cluster: &Cluster, history: &mut History) -> Response {
    let pods = |namespace: &Value| format!("/api/v1/namespaces/{}/pods", namespace.as_str().unwrap());
    match request {
        "GET /api" => return Response::Object(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "GET /apis" => {
            return Response::Object(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}));
        }
        "GET /api/v1" => return Response::Object(resources()),
        _ => {}
    }
    let (method, path) = request.split_once(' ').unwrap();
    if let Some(namespace) =
        path.strip_prefix("/api/v1/namespaces/").and_then(|rest| rest.strip_suffix("/pods"))
        && method == "POST"
    {
        return create(namespace, body, cluster, history);
    }
    let target = &cluster.pod["metadata"];
    if path == format!("{}/{}", pods(&target["namespace"]), target["name"].as_str().unwrap()) {
        return Response::Object(cluster.pod.clone());
    }
    let created = history.created.iter().find_map(|pod| {
        let metadata = &pod["metadata"];
        let own = format!("{}/{}", pods(&metadata["namespace"]), metadata["name"].as_str().unwrap());
        path.strip_prefix(&own).map(|rest| (pod.clone(), rest.to_owned()))
    });
    match created {
        Some((mut pod, rest)) if rest.is_empty() => {
            if method == "GET" {
                let index = history.statuses_sent.min(cluster.statuses.len() - 1);
                history.statuses_sent += 1;
                pod["status"] = cluster.statuses[index].clone();
            }
            Response::Object(pod)
        }
        Some((_, rest)) if rest == "/log" => Response::Text(cluster.log),
        _ => Response::Error(404, "NotFound", format!("{path} not found")),
    }
}

fn create(namespace: &str, body: &[u8], cluster: &Cluster, history: &mut History) -> Response {
    if let Some(message) = cluster.refusal {
        return Response::Error(403, "Forbidden", message.to_owned());
    }
    let mut pod: Value = serde_json::from_slice(body).unwrap();
    let name = format!("{}{SUFFIX}", pod["metadata"]["generateName"].as_str().unwrap());
    pod["metadata"]["name"] = json!(name);
    assert_eq!(pod["metadata"]["namespace"], namespace);
    history.created.push(pod.clone());
    Response::Object(pod)
}

fn resources() -> Value {
    let verbs = ["create", "delete", "get", "list", "watch"];
    json!({
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": verbs},
            {"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]},
        ],
    })
}

/// `Status` of the API conventions.
fn error(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    })
}
