//! Tests the profiles in requests for Pyroscope with `go tool pprof`.

use std::io::Read as _;

use flate2::read::GzDecoder;
use profiler_agent::{
    Resource, Window,
    pyroscope::{self, PyroscopeOptions},
};

use crate::{
    known::{MANY, known},
    pprof::{functions, pprof},
    readers,
};

#[test]
fn go_tool_pprof_reads_the_time_of_all_threads_together() {
    if readers::installed("pprof").is_none() {
        return;
    }
    let window = Window::new(known(), |_, _| Resource::default());
    let encoded = pyroscope::encode(&window, &PyroscopeOptions::default());
    assert_eq!((encoded.messages.len(), encoded.too_large), (1, 0));
    let mut request = Vec::new();
    GzDecoder::new(&*encoded.messages[0].body).read_to_end(&mut request).unwrap();
    // The profile is the last field of the request.
    let start = request.windows(2).position(|bytes| bytes == [0x1f, 0x8b]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.pb.gz");
    std::fs::write(&path, &request[start..]).unwrap();

    let top = pprof(&path, &["-top", "-nodefraction=0", "-unit=ms"]).unwrap();
    assert!(top.contains("Type: cpu\n") && top.contains("Duration: 50ms, "), "{top}");
    let time_of = |name: &str| functions(&top).into_iter().find(|(_, _, of)| of.contains(name)).unwrap().0;
    assert_eq!(time_of("Hot"), "20ms");
    assert_eq!(time_of("ksys_read"), format!("{}ms", MANY * 10));
    let tags = pprof(&path, &["-tags"]).unwrap();
    assert!(!tags.contains("tid") && !tags.contains("app"), "{tags}");
}
