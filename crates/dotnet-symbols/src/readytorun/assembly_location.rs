//! Locates the assemblies that the metadata of an image refers to: in a folder or in a single-file program.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_binary_reader::{Image, ParseError};

use super::{AssemblyFiles, NameError, bundle::Bundle};

/// The framework that all other frameworks depend on. Its assemblies are in a folder of their own.
const BASE_FRAMEWORK: &str = "Microsoft.NETCore.App";

/// Where an image and the assemblies next to it are.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum AssemblyLocation {
    /// A folder of the root of the process that maps the image.
    Folder(PathBuf),
    /// A single-file program.
    Bundle(Arc<Bundle>),
}

impl AssemblyLocation {
    /// The location of an image from its path.
    pub fn from_image_path(path: &Path) -> Self {
        Self::Folder(path.parent().unwrap_or(path).to_owned())
    }

    /// The location of an assembly in a single-file program.
    pub fn from_bundle(bundle: &Arc<Bundle>) -> Self {
        Self::Bundle(Arc::clone(bundle))
    }

    /// Opens the assembly of a name; with its path, unless it is in a single-file program.
    pub(super) fn open(
        &self,
        assembly: &str,
        files: &dyn AssemblyFiles,
    ) -> Result<(Image, Option<PathBuf>), NameError> {
        // The name is untrusted: it comes from an image of the target.
        if assembly.is_empty() || assembly.contains(['/', '\0']) {
            return Err(NameError::ParseError(ParseError::Malformed));
        }
        let file_name = format!("{assembly}.dll");
        match self {
            Self::Folder(folder) => {
                let mut candidates = candidate_paths(folder, &file_name).into_iter();
                let found = candidates.find_map(|path| Some((files.open(&path)?, Some(path))));
                found.ok_or(NameError::AssemblyMissing)
            }
            Self::Bundle(bundle) => {
                let found = bundle.assembly_named(&file_name).ok_or(NameError::AssemblyMissing)?;
                Ok((bundle.image_of(found)?, None))
            }
        }
    }
}

/// The folder of the image, then that of the base framework: `shared/FRAMEWORK/VERSION`.
fn candidate_paths(folder: &Path, file_name: &str) -> Vec<PathBuf> {
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
    use crate::readytorun::tests::FilesBelow;

    fn files(root: &Path) -> FilesBelow {
        FilesBelow(root.to_owned())
    }

    #[test]
    fn an_assembly_is_found_next_to_the_image_or_in_the_base_framework() {
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
        let location = AssemblyLocation::from_image_path(Path::new(
            "/dotnet/shared/Microsoft.AspNetCore.App/8.0.1/composite.dll",
        ));
        let length = |name| location.open(name, &files(root.path())).map(|(image, _)| image.length());
        assert_eq!(length("A"), Ok(1));
        assert_eq!(length("B"), Ok(2));
        assert_eq!(length("C"), Err(NameError::AssemblyMissing));
    }

    #[test]
    fn a_name_cannot_select_another_folder() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("app")).unwrap();
        fs::write(root.path().join("secret.dll"), "x").unwrap();
        let location = AssemblyLocation::from_image_path(Path::new("/app/composite.dll"));
        for name in ["../secret", "/secret", "", "a\0b"] {
            assert_eq!(
                location.open(name, &files(root.path())).err(),
                Some(NameError::ParseError(ParseError::Malformed))
            );
        }
    }
}
