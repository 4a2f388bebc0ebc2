//! Where the other assemblies are that an image's code is named by.

use profiler_binary_reader::{Image, ParseError};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::bundle::Bundle;
use crate::readytorun::AssemblyFiles;
use crate::readytorun::NameError;

/// The framework that all others build on: its assemblies are in a folder of their own.
const BASE_FRAMEWORK: &str = "Microsoft.NETCore.App";

/// Where an image is, and its neighbours.
#[derive(Clone, Debug)]
pub enum Home {
    /// A folder in the target's root.
    Folder(PathBuf),
    /// The same single-file program.
    Bundle(Arc<Bundle>),
}

impl Home {
    /// Of the file at `path`.
    pub fn beside(path: &Path) -> Self {
        Self::Folder(path.parent().unwrap_or(path).to_owned())
    }

    /// Of an assembly in a single-file program.
    pub fn bundle(bundle: &Arc<Bundle>) -> Self {
        Self::Bundle(Arc::clone(bundle))
    }

    /// The image of the assembly of a name.
    pub(super) fn open(&self, assembly: &str, files: &dyn AssemblyFiles) -> Result<Image, NameError> {
        // The name comes from an image that the target made.
        if assembly.is_empty() || assembly.contains(['/', '\0']) {
            return Err(NameError::ParseError(ParseError::Malformed));
        }
        let file_name = format!("{assembly}.dll");
        match self {
            Self::Folder(folder) => {
                let found = candidates(folder, &file_name).into_iter().find_map(|path| files.open(&path));
                found.ok_or(NameError::AssemblyMissing)
            }
            Self::Bundle(bundle) => {
                let found = bundle.assembly_named(&file_name).ok_or(NameError::AssemblyMissing)?;
                Ok(bundle.image_of(found)?)
            }
        }
    }
}

/// Beside the image, then in the framework that its own builds on: `shared/FRAMEWORK/VERSION`.
fn candidates(folder: &Path, file_name: &str) -> Vec<PathBuf> {
    let shared = folder.parent().and_then(Path::parent);
    let base = shared
        .zip(folder.file_name())
        .map(|(shared, version)| shared.join(BASE_FRAMEWORK).join(version).join(file_name));
    [folder.join(file_name)].into_iter().chain(base).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::readytorun::tests::Below;

    fn files(root: &Path) -> Below {
        Below(root.to_owned())
    }

    #[test]
    fn a_neighbour_is_beside_the_image_or_in_the_base_framework() {
        let root = tempfile::tempdir().unwrap();
        for (path, contents) in [
            ("dotnet/shared/Microsoft.AspNetCore.App/8.0.1/A.dll", "a"),
            ("dotnet/shared/Microsoft.NETCore.App/8.0.1/A.dll", "other"),
            ("dotnet/shared/Microsoft.NETCore.App/8.0.1/B.dll", "bb"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        let home = Home::beside(Path::new("/dotnet/shared/Microsoft.AspNetCore.App/8.0.1/composite.dll"));
        let length = |name| home.open(name, &files(root.path())).map(|image| image.length());
        assert_eq!(length("A"), Ok(1));
        assert_eq!(length("B"), Ok(2));
        assert_eq!(length("C"), Err(NameError::AssemblyMissing));
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("app")).unwrap();
        fs::write(root.path().join("secret.dll"), "x").unwrap();
        let home = Home::beside(Path::new("/app/composite.dll"));
        for name in ["../secret", "/secret", "", "a\0b"] {
            assert_eq!(
                home.open(name, &files(root.path())).err(),
                Some(NameError::ParseError(ParseError::Malformed))
            );
        }
    }
}
