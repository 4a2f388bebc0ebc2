//! Packs the binary as an OCI image without a base, in the image layout of the OCI image specification 1.1.
//!
//! The archive also has the `manifest.json` that `docker load` reads.

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    release::{NAME, Release},
    tree::{Tree, gzip},
};
use crate::digest::sha256;

/// A blob of an image layout.
struct Blob {
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn json(media_type: &'static str, value: &Value) -> Self {
        Self { media_type, content: value.to_string().into_bytes() }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", sha256(&self.content))
    }

    /// `descriptor.md` of the specification.
    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest(), "size": self.content.len()})
    }

    fn digest(&self) -> String {
        digest(&self.content)
    }
}

/// The image layout as an uncompressed tarball.
pub(super) fn pack(release: &Release) -> Result<Vec<u8>> {
    let files = layer(release)?;
    let layer = Blob { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", content: gzip(&files)? };
    let config = Blob::json("application/vnd.oci.image.config.v1+json", &config(release, &digest(&files))?);
    const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    });
    let manifest = Blob::json(MANIFEST_TYPE, &manifest);
    let mut tree = release.tree();
    tree.file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string());
    tree.file("index.json", index(release, &manifest).to_string());
    tree.file("manifest.json", docker_manifest(release, &config, &layer).to_string());
    for blob in [&layer, &config, &manifest] {
        tree.file(&blob.path(), blob.content.as_slice());
    }
    tree.tar("")
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256(content))
}

/// The only layer: the binary, and the folders where writable volumes can be mounted over a read-only root. The second one
/// is for the agent's spool.
fn layer(release: &Release) -> Result<Vec<u8>> {
    let mut tree: Tree = release.tree();
    tree.program(NAME, release.binary.content.as_slice());
    tree.folder("tmp", 0o1777);
    tree.folder("var/lib/profiler", 0o700);
    tree.tar("")
}

/// `config.md` of the specification.
fn config(release: &Release, diff_id: &str) -> Result<Value> {
    let created = release.date("+%Y-%m-%dT%H:%M:%SZ")?;
    Ok(json!({
        "architecture": release.binary.architecture,
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": [format!("/{NAME}")],
            "User": "0:0",
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    }))
}

/// `image-index.md` of the specification. The second annotation is containerd's, for a name with a tag.
fn index(release: &Release, manifest: &Blob) -> Value {
    let mut descriptor = manifest.descriptor();
    descriptor["platform"] = json!({"architecture": release.binary.architecture, "os": "linux"});
    descriptor["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": format!("docker.io/library/{}", tag(release)),
    });
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    })
}

fn docker_manifest(release: &Release, config: &Blob, layer: &Blob) -> Value {
    json!([{"Config": config.path(), "RepoTags": [tag(release)], "Layers": [layer.path()]}])
}

fn tag(release: &Release) -> String {
    format!("{NAME}:{}", release.version)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use super::{super::release::tests::example, *};

    fn unpacked() -> BTreeMap<String, Vec<u8>> {
        let archive = pack(&example()).unwrap();
        let mut archive = tar::Archive::new(archive.as_slice());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        files
    }

    #[test]
    fn every_blob_is_stored_under_its_digest() {
        let files = unpacked();
        let blobs: Vec<_> = files.iter().filter(|(path, _)| path.starts_with("blobs/sha256/")).collect();
        for (path, content) in &blobs {
            assert!(path.ends_with('/') || **path == format!("blobs/sha256/{}", sha256(content)), "{path}");
        }
        assert_eq!(blobs.len(), 4, "{:?}", files.keys());
    }

    #[test]
    fn the_docker_manifest_names_the_same_blobs_as_the_index() {
        let files = unpacked();
        let json = |path: &str| serde_json::from_slice::<Value>(&files[path]).unwrap();
        let path = |descriptor: &Value| {
            format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
        };
        let manifest = json(&path(&json("index.json")["manifests"][0]));
        let docker = &json("manifest.json")[0];
        assert_eq!(docker["Config"], path(&manifest["config"]));
        assert_eq!(docker["Layers"], json!([path(&manifest["layers"][0])]));
        assert_eq!(docker["RepoTags"], json!(["profiler:1.2.3"]));
        assert_eq!(json(&path(&manifest["config"]))["config"]["Entrypoint"], json!(["/profiler"]));
    }
}
