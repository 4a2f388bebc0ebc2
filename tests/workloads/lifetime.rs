//! Start and end of every Rust workload, with the same behaviour as lifetime.h.

use std::{
    env, fs,
    io::{self, Read as _},
    os::unix::fs::FileTypeExt as _,
    process, thread,
    time::{Duration, Instant},
};

pub struct Lifetime {
    ends_at: Instant,
}

impl Lifetime {
    /// Prints `ready PID`. The workload ends after the seconds of the first argument (default 60), or when the pipe
    /// on standard input is closed.
    pub fn begin() -> Self {
        let seconds = env::args().nth(1).and_then(|limit| limit.parse().ok()).unwrap_or(60.0);
        if fs::metadata("/dev/stdin").is_ok_and(|input| input.file_type().is_fifo()) {
            thread::spawn(|| {
                let end = io::stdin().read_to_end(&mut Vec::new());
                process::exit(i32::from(end.is_err()));
            });
        }
        println!("ready {}", process::id());
        Self { ends_at: Instant::now() + Duration::from_secs_f64(seconds) }
    }

    pub fn goes_on(&self) -> bool {
        Instant::now() < self.ends_at
    }
}
