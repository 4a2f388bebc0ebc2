//! Talks to a program that speaks the Model Context Protocol on its standard input and output, so that it has work.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ChildStdout},
    thread,
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// The first version of the protocol: every server speaks it.
const VERSION: &str = "2024-11-05";

/// Greets the program, and then asks for its list of tools again and again until it is gone.
pub(super) fn begin(mut input: ChildStdin, mut output: BufReader<ChildStdout>) -> Result<()> {
    let client = json!({"name": "bench", "version": "1"});
    let parameters = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client});
    say(&mut input, &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": parameters}))?;
    ensure!(hear(&mut output)?.contains("serverInfo"), "the program does not speak the protocol");
    say(&mut input, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    // It ends with the program, which closes the pipes.
    thread::spawn(move || {
        (1_u64..).try_for_each(|id| {
            say(&mut input, &json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}))?;
            hear(&mut output).map(drop)
        })
    });
    Ok(())
}

fn say(input: &mut ChildStdin, message: &Value) -> io::Result<()> {
    writeln!(input, "{message}")
}

/// The next message: each is a line.
fn hear(output: &mut BufReader<ChildStdout>) -> io::Result<String> {
    let mut line = String::new();
    match output.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}
