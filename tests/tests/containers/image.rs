//! Unpacks the OCI image of the release, as a container runtime does.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::release::release_file;

/// An image layout of the OCI image specification.
pub(crate) struct Image {
    layout: TempDir,
}

impl Image {
    /// Opens the image of the release.
    pub(crate) fn open() -> Self {
        let layout = tempfile::tempdir().unwrap();
        tar::Archive::new(File::open(release_file(".tar")).unwrap()).unpack(layout.path()).unwrap();
        let version = read_json(&layout.path().join("oci-layout"));
        assert_eq!(version["imageLayoutVersion"], "1.0.0");
        Self { layout }
    }

    /// Creates the container's root folder from all layers, and checks the digests of each layer.
    pub(crate) fn unpack_into(&self, root: &Path) {
        let manifest = self.manifest();
        let layers = manifest["layers"].as_array().unwrap();
        let config = self.config();
        let uncompressed = config["rootfs"]["diff_ids"].as_array().unwrap();
        assert_eq!(layers.len(), uncompressed.len());
        fs::create_dir(root).unwrap();
        for (layer, diff_id) in layers.iter().zip(uncompressed) {
            assert_eq!(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");
            let mut content = Vec::new();
            let mut decoder = GzDecoder::new(File::open(self.blob(layer)).unwrap());
            std::io::Read::read_to_end(&mut decoder, &mut content).unwrap();
            assert_eq!(digest(&content), diff_id.as_str().unwrap());
            tar::Archive::new(content.as_slice()).unpack(root).unwrap();
        }
    }

    /// The entry point of the image with its arguments.
    pub(crate) fn entrypoint(&self) -> Vec<String> {
        let words = self.config()["config"]["Entrypoint"].clone();
        serde_json::from_value(words).unwrap()
    }

    fn config(&self) -> Value {
        read_json(&self.blob(&self.manifest()["config"]))
    }

    fn manifest(&self) -> Value {
        let index = read_json(&self.layout.path().join("index.json"));
        let manifests = index["manifests"].as_array().unwrap();
        assert_eq!(manifests.len(), 1);
        read_json(&self.blob(&manifests[0]))
    }

    /// Reads the blob of a descriptor and checks its size and digest.
    fn blob(&self, descriptor: &Value) -> PathBuf {
        let expected = descriptor["digest"].as_str().unwrap();
        let path = self.layout.path().join("blobs").join(expected.replace(':', "/"));
        let content = fs::read(&path).unwrap();
        assert_eq!(digest(&content), expected);
        assert_eq!(descriptor["size"], content.len());
        path
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The digest of a blob, as in a descriptor.
pub(crate) fn digest(content: &[u8]) -> String {
    let digits: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}
