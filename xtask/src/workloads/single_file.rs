//! Makes single-file programs of the .NET workload, as `dotnet publish` does: the host that has the runtime in it, the
//! assemblies of the framework behind it, and a list of them at the end.
//!
//! Source: dotnet/runtime, `src/native/corehost/bundle`.

use std::{io::Write as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, write::DeflateEncoder};
use fs_err as fs;
use serde_json::json;

use super::output_folder;
use crate::{make::make_from, project, setup};

/// Where the list begins is stated before these bytes of the host.
const MARKER: [u8; 32] = [
    0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32, 0x13,
    0xf5, 0xb9, 0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
];

/// The program that the host was made for, and the one that it starts now.
const BOUND_TO: &[u8] = b"azmcp.dll\0";
const PROGRAM: &[u8] = b"app.dll\0\0\0";

/// How the SDK aligns assemblies on x86-64.
const ALIGNMENT_BYTES: usize = 64;

const ASSEMBLY: u8 = 1;
const DEPENDENCIES: u8 = 3;
const RUNTIME_CONFIG: u8 = 4;

/// A program: the folder with its host, whose version has a core library of its own if there is one beside it.
struct Program {
    name: &'static str,
    host: &'static str,
    version: &'static str,
    is_compressed: bool,
}

const PROGRAMS: [Program; 3] = [
    Program { name: "single-file", host: "host", version: "9.0", is_compressed: false },
    Program { name: "single-file-compressed", host: "host", version: "9.0", is_compressed: true },
    Program { name: "single-file-10.0", host: "host-10.0", version: "10.0", is_compressed: false },
];

/// Builds the programs that are older than the workload in `app`.
pub(super) fn build(app: &Path) -> Result<()> {
    for program in PROGRAMS {
        let path = output_folder().join("dotnet").join(program.name);
        make_from(&path, &[app], || {
            fs::write(&path, program.bundle(app)?)?;
            Ok(project::make_executable(&path)?)
        })?;
    }
    Ok(())
}

impl Program {
    fn bundle(&self, app: &Path) -> Result<Vec<u8>> {
        let host = setup::dotnet_runtime(self.host);
        let mut bundle = Bundle::of_host(fs::read(host.join("singlefilehost"))?)?;
        let framework = setup::dotnet_runtime("9.0").join("shared/Microsoft.NETCore.App");
        let mut assemblies = project::files_below(&framework)?;
        assemblies.retain(|file| file.extension().is_some_and(|extension| extension == "dll"));
        assemblies.push(app.to_owned());
        let mut names = Vec::new();
        for assembly in &assemblies {
            let name =
                assembly.file_name().and_then(|name| name.to_str()).context("an assembly has a name")?;
            let own = host.join(name);
            let contents = fs::read(if own.exists() { &own } else { assembly })?;
            bundle.add(name, &contents, ASSEMBLY, self.is_compressed)?;
            names.push(name);
        }
        let config = bundle.add("app.runtimeconfig.json", &self.runtime_config(), RUNTIME_CONFIG, false)?;
        let dependencies = bundle.add("app.deps.json", &self.dependencies(&names), DEPENDENCIES, false)?;
        bundle.finish(dependencies, config)
    }

    fn runtime_config(&self) -> Vec<u8> {
        let version = self.version;
        let framework = json!({ "name": "Microsoft.NETCore.App", "version": format!("{version}.0") });
        let settings = json!({ "System.Globalization.Invariant": true });
        let tfm = format!("net{version}");
        let options = json!({ "tfm": tfm, "includedFrameworks": [framework], "configProperties": settings });
        json!({ "runtimeOptions": options }).to_string().into_bytes()
    }

    fn dependencies(&self, assemblies: &[&str]) -> Vec<u8> {
        let version = self.version;
        let generic = format!(".NETCoreApp,Version=v{version}");
        let target = format!("{generic}/linux-x64");
        let pack = format!("runtimepack.Microsoft.NETCore.App.Runtime.linux-x64/{version}.0");
        let files: serde_json::Map<_, _> =
            assemblies.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let list = json!({
            "runtimeTarget": { "name": &target, "signature": "" },
            "compilationOptions": {},
            "targets": { &generic: {}, &target: { &pack: { "runtime": files } } },
            "libraries": { &pack: { "type": "runtimepack", "serviceable": false, "sha512": "" } },
        });
        list.to_string().into_bytes()
    }
}

/// Where something is in the program, and how long.
type Place = (u64, u64);

struct Bundle {
    bytes: Vec<u8>,
    marker: usize,
    entries: Vec<u8>,
    count: u32,
}

impl Bundle {
    fn of_host(mut bytes: Vec<u8>) -> Result<Self> {
        let marker = position(&bytes, &MARKER).context("the host has no place for a bundle")?;
        let bound_to = position(&bytes, BOUND_TO).context("the host starts another program")?;
        bytes[bound_to..bound_to + PROGRAM.len()].copy_from_slice(PROGRAM);
        Ok(Self { bytes, marker, entries: Vec::new(), count: 0 })
    }

    fn add(&mut self, name: &str, contents: &[u8], kind: u8, is_compressed: bool) -> Result<Place> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        let place = (self.bytes.len() as u64, contents.len() as u64);
        let packed = if is_compressed { deflate(contents)? } else { Vec::new() };
        self.bytes.extend(if is_compressed { &packed } else { contents });
        for number in [place.0, place.1, packed.len() as u64] {
            self.entries.extend(number.to_le_bytes());
        }
        self.entries.push(kind);
        self.entries.extend(string(name)?);
        self.count += 1;
        Ok(place)
    }

    fn finish(mut self, dependencies: Place, config: Place) -> Result<Vec<u8>> {
        const VERSION: [u32; 2] = [6, 0];
        const NO_FLAGS: u64 = 0;
        let list = self.bytes.len() as u64;
        self.bytes.extend([VERSION[0], VERSION[1], self.count].into_iter().flat_map(u32::to_le_bytes));
        self.bytes.extend(string("workload")?);
        let places = [dependencies.0, dependencies.1, config.0, config.1, NO_FLAGS];
        self.bytes.extend(places.into_iter().flat_map(u64::to_le_bytes));
        self.bytes.append(&mut self.entries);
        self.bytes[self.marker - 8..self.marker].copy_from_slice(&list.to_le_bytes());
        Ok(self.bytes)
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn deflate(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Behind its length, which takes one byte up to here.
fn string(text: &str) -> Result<Vec<u8>> {
    const MAX_BYTES: usize = 0x7f;
    ensure!(text.len() <= MAX_BYTES, "{text} is too long a name");
    Ok([&[text.len() as u8], text.as_bytes()].concat())
}
