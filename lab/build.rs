//! Puts the scenarios, the descriptions of proxies and the commit into the program.

#[path = "../proxy/version.rs"]
mod version;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders of the repository, and their names in the program.
const FOLDERS: [(&str, &str); 2] = [("../scenarios", "scenarios"), ("proxies", "proxies")];

fn main() -> io::Result<()> {
    let root = variable("CARGO_MANIFEST_DIR")?;
    let mut table = String::from("/// Path and text of each file.\nstatic FILES: &[(&str, &str)] = &[\n");
    for (folder, name) in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        let folder = root.join(folder).canonicalize()?;
        let mut files = Vec::new();
        yaml_files(&folder, &mut files)?;
        files.sort();
        for file in files {
            let inside = Path::new(name).join(file.strip_prefix(&folder).map_err(io::Error::other)?);
            let _ = writeln!(table, "    ({inside:?}, include_str!({file:?})),");
        }
    }
    table.push_str("];\n");
    fs::write(variable("OUT_DIR")?.join("shipped.rs"), table)?;
    println!("cargo::rerun-if-changed=../proxy/version.rs");
    version::emit("SVCLAB", true);
    Ok(())
}

fn variable(name: &str) -> io::Result<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("{name} is not set")))
}

fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            yaml_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    Ok(())
}
