//! Writes the software bill of materials (SBOM) of the binary: CycloneDX 1.5 in JSON.
//!
//! It lists the packages whose code is in the binary, as the binary itself lists them. It has no serial number, and its
//! time is that of the release: the same binary gives the same bytes.

use anyhow::{Context as _, Result};
use auditable_serde::{Package, Source};
use serde_json::{Value, json};

use super::{binary::is_linked, release::Release};
use crate::digest::sha256;

/// The document as text.
pub(super) fn write(release: &Release) -> Result<Vec<u8>> {
    let packages = &release.binary.packages;
    let root =
        packages.iter().find(|package| package.root).context("the binary lists no package of its own")?;
    let mut program = component(root, "application");
    program["hashes"] = json!([{"alg": "SHA-256", "content": sha256(&release.binary.content)}]);
    let is_library = |package: &&Package| is_linked(package) && !package.root;
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": release.date("+%Y-%m-%dT%H:%M:%SZ")?, "component": program},
        "components": packages
            .iter()
            .filter(is_library)
            .map(|package| component(package, "library"))
            .collect::<Vec<_>>(),
        "dependencies": packages
            .iter()
            .filter(|package| is_linked(package))
            .map(|package| dependencies(package, packages))
            .collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version.to_string(),
    });
    if package.source == Source::CratesIo {
        component["purl"] = package_url(package).into();
    }
    component
}

/// The package URL, with the plus sign of a version escaped: <https://github.com/package-url/purl-spec>.
fn package_url(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

fn dependencies(package: &Package, packages: &[Package]) -> Value {
    let used = package.dependencies.iter().filter_map(|index| packages.get(*index));
    let used: Vec<_> = used.filter(|used| is_linked(used)).map(reference).collect();
    json!({"ref": reference(package), "dependsOn": used})
}

fn reference(package: &Package) -> String {
    format!("{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::{super::release::tests::example, *};

    fn document() -> Value {
        serde_json::from_slice(&write(&example()).unwrap()).unwrap()
    }

    #[test]
    fn packages_of_the_build_alone_are_left_out() {
        let document = document();
        let names: Vec<_> =
            document["components"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
        assert_eq!(names, ["profiler-common", "wasi"]);
        assert_eq!(document["metadata"]["component"]["name"], "profiler");
        assert_eq!(
            document["dependencies"],
            json!([
                {"ref": "profiler@1.2.3", "dependsOn": ["profiler-common@1.2.3", "wasi@0.14.7+wasi-0.2.4"]},
                {"ref": "profiler-common@1.2.3", "dependsOn": []},
                {"ref": "wasi@0.14.7+wasi-0.2.4", "dependsOn": []},
            ])
        );
    }

    #[test]
    fn packages_of_a_registry_alone_have_a_package_url() {
        let document = document();
        let components = &document["components"];
        assert_eq!(components[0].get("purl"), None);
        assert_eq!(components[1]["purl"], "pkg:cargo/wasi@0.14.7%2Bwasi-0.2.4");
    }

    #[test]
    fn the_document_names_the_binary_and_the_time_of_the_release() {
        let document = document();
        let program = &document["metadata"]["component"];
        assert_eq!(program["hashes"][0]["content"], sha256(&example().binary.content));
        assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
        assert_eq!(document.get("serialNumber"), None);
    }
}
