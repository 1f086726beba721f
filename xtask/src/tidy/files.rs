//! The files of a project.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::project;

/// The committed or committable files, relative to `root`.
pub(crate) fn project_files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output();
    let mut files: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => output
            .stdout
            .split(|&b| b == 0)
            .filter(|name| !name.is_empty())
            .map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()))
            .filter(|file| root.join(file).is_file())
            .collect(),
        // Not a git checkout (a source archive): all files but build products.
        _ => {
            let mut found = Vec::new();
            walk_folder(root, root, &mut found)?;
            found
        }
    };
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk_folder(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?
    {
        let path = entry?.path();
        let name = project::name(&path);
        if path.is_dir() {
            if !matches!(
                name.as_str(),
                "target" | ".git" | "corpus" | "artifacts" | "results"
            ) {
                walk_folder(root, &path, found)?;
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_path_buf());
        }
    }
    Ok(())
}
