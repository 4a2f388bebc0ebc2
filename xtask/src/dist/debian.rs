//! Packs the release as a Debian package: an `ar` archive of two tarballs, deb(5).

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::{
    release::{NAME, Release},
    tree::{Tree, gzip},
};

/// The field `Maintainer`, which dpkg requires. RFC 2606 reserves the domain: it receives no mail.
const MAINTAINER: &str = "Profiler Authors <authors@profiler.invalid>";

/// Packs the members in the order that deb(5) requires.
pub(super) fn pack(release: &Release) -> Result<Vec<u8>> {
    let data = data(release)?;
    let control = control(release, &data)?;
    archive(
        release.time_s,
        &[
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", control.tar_gz("./")?),
            ("data.tar.gz", data.tar_gz("./")?),
        ],
    )
}

/// The installed files.
fn data(release: &Release) -> Result<Tree> {
    let mut tree = release.tree();
    tree.program(&format!("usr/bin/{NAME}"), release.binary.content.as_slice());
    for page in &release.man_pages {
        tree.file(&format!("usr/share/man/man1/{}.gz", page.name), gzip(&page.content)?);
    }
    for completion in &release.completions {
        let path = completion_path(&completion.name)
            .with_context(|| format!("no folder is known for the completion {}", completion.name))?;
        tree.file(&path, completion.content.as_slice());
    }
    let documents = format!("usr/share/doc/{NAME}");
    for document in release.documents(&["README.md", "CHANGELOG.md"]) {
        tree.file(&format!("{documents}/{}.gz", document.name), gzip(&document.content)?);
    }
    for file in &release.deployment {
        tree.file_or_script(&format!("{documents}/deploy/{}", file.name), &file.content);
    }
    tree.file(&format!("{documents}/copyright"), copyright(release)?);
    tree.file(&format!("{documents}/changelog.gz"), gzip(changelog(release)?.as_bytes())?);
    tree.file(&format!("usr/share/lintian/overrides/{NAME}"), lintian_overrides());
    Ok(tree)
}

/// A static position-independent executable looks like a library without dependencies.
fn lintian_overrides() -> String {
    format!("{NAME}: shared-library-lacks-prerequisites [usr/bin/{NAME}]\n")
}

/// Where Debian's shells look for completions.
fn completion_path(name: &str) -> Option<String> {
    let path = match name {
        "profiler.bash" => format!("usr/share/bash-completion/completions/{NAME}"),
        "profiler.fish" => format!("usr/share/fish/vendor_completions.d/{name}"),
        "_profiler" => format!("usr/share/zsh/vendor-completions/{name}"),
        _ => return None,
    };
    Some(path)
}

/// The control archive. deb-control(5).
fn control(release: &Release, data: &Tree) -> Result<Tree> {
    let (version, architecture) = (&release.version, release.binary.architecture);
    let installed_kib = data.files().map(|(_, content)| content.len().div_ceil(1024)).sum::<usize>();
    let mut md5sums = String::new();
    for (path, content) in data.files() {
        writeln!(md5sums, "{:x}  {path}", md5::compute(content))?;
    }
    let mut tree = release.tree();
    tree.file(
        "control",
        format!(
            "Package: {NAME}\n\
             Version: {version}\n\
             Architecture: {architecture}\n\
             Maintainer: {MAINTAINER}\n\
             Installed-Size: {installed_kib}\n\
             Section: devel\n\
             Priority: optional\n\
             Description: sampling CPU profiler for native, .NET and kernel code\n \
             Samples running processes with eBPF and symbolizes native, JIT-compiled and\n \
             kernel frames in the process itself. Writes flame graphs, folded stacks, pprof\n \
             and other formats. Processes in containers need no preparation.\n"
        ),
    );
    tree.file("md5sums", md5sums);
    Ok(tree)
}

/// Debian's machine-readable copyright format 1.0.
fn copyright(release: &Release) -> Result<String> {
    let mit = release.documents(&["LICENSE-MIT"]).next().context("the release has no LICENSE-MIT")?;
    let mit = String::from_utf8(mit.content.clone())?;
    let year = release.date("+%Y")?;
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         \n\
         Files: *\n\
         Copyright: {year} the profiler authors\n\
         License: Expat or Apache-2.0\n\
         Comment: The BPF program in the binary is also available under the GPL 2, whose text is in\n \
         /usr/share/common-licenses/GPL-2.\n\
         \n\
         License: Apache-2.0\n \
         The text is in /usr/share/common-licenses/Apache-2.0.\n\
         \n\
         License: Expat\n"
    );
    for line in mit.trim_end().lines() {
        let line = if line.is_empty() { "." } else { line };
        writeln!(text, " {line}")?;
    }
    Ok(text)
}

/// The changelog that Debian's policy requires, 4.4. Changes themselves are in `CHANGELOG.md`.
fn changelog(release: &Release) -> Result<String> {
    let date = release.date("+%a, %d %b %Y %H:%M:%S +0000")?;
    Ok(format!(
        "{NAME} ({}) unstable; urgency=medium\n\n  * The changes of this version are in CHANGELOG.md.gz.\n\n \
         -- {MAINTAINER}  {date}\n",
        release.version
    ))
}

/// An archive as `dpkg-deb` reads it, with files of mode 0644 that root owns.
fn archive(time_s: u64, members: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut archive = ar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), u64::try_from(content.len())?);
        header.set_mtime(time_s);
        header.set_mode(0o100644);
        archive.append(&header, content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::{super::release::tests::example, *};

    #[test]
    fn every_file_has_a_checksum() {
        let release = example();
        let data = data(&release).unwrap();
        let control = control(&release, &data).unwrap();
        let (_, sums) = control.files().find(|(path, _)| *path == "md5sums").unwrap();
        let sums = String::from_utf8(sums.to_vec()).unwrap();
        assert_eq!(sums.lines().count(), data.files().count());
        let binary_line = format!("{:x}  usr/bin/profiler", md5::compute(&release.binary.content));
        assert!(sums.lines().any(|line| line == binary_line), "{sums}");
    }

    #[test]
    fn an_unknown_completion_is_an_error() {
        let mut release = example();
        release.completions[0].name = "profiler.elv".to_owned();
        assert!(pack(&release).is_err());
    }
}
