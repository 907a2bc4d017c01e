//! Programs for guests, and QEMU for hosts without one.

use std::fs;
use std::path::Path;

use super::VmError;
use super::apt::{self, Apt};
use super::cache::{Cache, Sealed};
use super::tree;

const PACKAGES: [&str; 7] = ["busybox-static", "conntrack", "iproute2", "ipset", "iptables", "ipvsadm", "nftables"];
/// Folders of libraries, with and without merged `/usr`.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// Returns tools for guests: `bin`, `lib` and `xtables` (iptables' extensions).
pub(super) fn guest(cache: &Cache) -> Result<Sealed, VmError> {
    let name = format!("packages/tools-{}", &tree::hash_of(PACKAGES)[..12]);
    cache.get(&name, |folder| {
        let apt = Apt::open(cache)?;
        let unpacked = temporary_folder(cache)?;
        for file in apt.download(&PACKAGES, true)? {
            let package = apt::package_of(&file);
            let root = unpacked.path().join(package);
            apt::unpack(&file, &root)?;
            if PACKAGES.contains(&package) {
                for programs in ["bin", "sbin", "usr/bin", "usr/sbin"] {
                    copy_files(&root.join(programs), &folder.join("bin"), |_| true)?;
                }
            }
            for libraries in LIBRARIES {
                copy_files(&root.join(libraries), &folder.join("lib"), |name| name.contains(".so"))?;
            }
            copy_files(&root.join(LIBRARIES[0]).join("xtables"), &folder.join("xtables"), |_| true)?;
        }
        Ok(())
    })
}

/// Returns QEMU with libraries, firmware and the emulation module.
pub(super) fn qemu(cache: &Cache) -> Result<Sealed, VmError> {
    cache.get("packages/qemu", |folder| {
        let apt = Apt::open(cache)?;
        let unpacked = temporary_folder(cache)?;
        let root = unpacked.path();
        for file in apt.download(&["qemu-system-x86"], true)? {
            apt::unpack(&file, root)?;
        }
        copy_files(&root.join("usr/bin"), &folder.join("bin"), |name| name == "qemu-system-x86_64")?;
        for libraries in LIBRARIES {
            copy_files(&root.join(libraries), &folder.join("lib"), |name| name.contains(".so"))?;
        }
        copy_files(&root.join(LIBRARIES[0]).join("qemu"), &folder.join("modules"), |name| name.starts_with("accel-"))?;
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            copy_files(&root.join(firmware), &folder.join("firmware"), |name| {
                name.ends_with(".rom") || name.ends_with(".bin")
            })?;
        }
        Ok(())
    })
}

pub(super) fn temporary_folder(cache: &Cache) -> Result<tempfile::TempDir, VmError> {
    let folder = cache.folder("scratch")?;
    tempfile::tempdir_in(&folder).map_err(VmError::io(format!("making a folder in {}", folder.display())))
}

/// Copies wanted files; skips sub-folders. Links stay within `to`.
fn copy_files(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), VmError> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    let failed = || VmError::io(format!("copying {} to {}", from.display(), to.display()));
    fs::create_dir_all(to).map_err(failed())?;
    for entry in entries {
        let path = entry.map_err(failed())?.path();
        let name = path.file_name().unwrap_or_default();
        if !wanted(&name.to_string_lossy()) {
            continue;
        }
        let kind = fs::symlink_metadata(&path).map_err(failed())?.file_type();
        let new = to.join(name);
        if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed())?;
            let target = target.file_name().unwrap_or_default();
            if target != name && !new.exists() {
                std::os::unix::fs::symlink(target, new).map_err(failed())?;
            }
        } else if kind.is_file() {
            fs::copy(&path, new).map_err(failed())?;
        }
    }
    Ok(())
}
