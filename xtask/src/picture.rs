//! `cargo xtask picture`: draws the flame graphs of the README, of an ASP.NET Core server whose runtime has no symbols.
//!
//! The README shows them as images, in which no script runs. They are kept without the script and the style of inferno.

#![cfg(feature = "commands")]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use fs_err as fs;

use crate::{
    bench::dotnet::running::{Place, Program, Running},
    project, setup, shell, static_binary, workloads,
};

/// Draw the README's flame graphs again.
#[derive(Args)]
pub(crate) struct Picture {
    /// The folder to write them to.
    #[arg(default_value = "docs/pictures")]
    folder: PathBuf,
}

const PATHS: &[&str] = &["/orders", "/json", "/plaintext"];

/// The server in a container, after a warm-up.
const WARM: &str = "flame-graph.svg";

/// The first seconds of the server on the host, in which its runtime has most to do.
const COLD: &str = "runtime.svg";
const COLD_PATHS: &[&str] = &["/json", "/plaintext"];
const COLD_OPTIONS: [&str; 7] = ["-F", "499", "-d", "3", "--dotnet-compilations", "--min-share", "0.3%"];

/// The style of an image, whose controls have no effect.
const STYLE: &str = "<style>text{font:12px monospace}#title{font-size:17px}#title,#subtitle{text-anchor:middle}\
    #details,#unzoom,#search,#matched{display:none}</style>";

impl Picture {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::EndToEnd])?;
        workloads::build()?;
        let profiler = static_binary::build(static_binary::QUICK)?;
        let folder = project::root().join("target/picture");
        fs::create_dir_all(&folder)?;
        let server = Running::start(Program::Server { paths: PATHS }, Place::Container, &folder)?;
        let drawn = draw(&profiler, &server, &["-d", "10"], &folder.join(WARM))?;
        fs::write(self.folder.join(WARM), drawn)?;
        drop(server);
        let server = Running::start_cold(COLD_PATHS, &folder)?;
        let drawn = draw(&profiler, &server, &COLD_OPTIONS, &folder.join(COLD))?;
        Ok(fs::write(self.folder.join(COLD), drawn)?)
    }
}

/// Draws a picture to a file, and returns the image.
fn draw(profiler: &Path, server: &Running, options: &[&str], picture: &Path) -> Result<String> {
    let mut command = shell::as_root(profiler);
    command.args(["-p", &server.pid().to_string()]).args(options).arg("-o").arg(picture);
    shell::run(&mut command)?;
    let drawn = fs::read_to_string(picture)?;
    image(&drawn).with_context(|| format!("{} is not a picture of inferno", picture.display()))
}

/// A picture without comments and script, and with the style of an image.
fn image(picture: &str) -> Option<String> {
    let (start, rest) = picture.split_once("<!--")?;
    let (_, rest) = rest.split_once("<defs>")?;
    let (definitions, rest) = rest.split_once("<style")?;
    let (_, boxes) = rest.split_once("]]></script>")?;
    let start = start.replace(" onload=\"init(evt)\"", "");
    Some(format!("{start}<defs>{definitions}{STYLE}{boxes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_the_boxes_of_a_picture_and_no_script() {
        let picture = "<svg onload=\"init(evt)\"><!--a--><defs>b</defs><style>c</style><script><![CDATA[d]]></script><g/></svg>";
        assert_eq!(image(picture), Some(format!("<svg><defs>b</defs>{STYLE}<g/></svg>")));
        assert_eq!(image("<svg/>"), None);
    }

    #[test]
    fn the_pictures_of_the_documents_are_images() {
        for name in [WARM, COLD] {
            let picture = fs::read_to_string(project::root().join("docs/pictures").join(name)).unwrap();
            assert!(picture.contains(STYLE) && !picture.contains("<script"), "{name}");
        }
    }
}
