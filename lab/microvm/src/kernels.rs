//! Kernels by name, and their parts: kernel and modules.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::VmError;
use super::apt::{self, Apt};
use super::bzimage;
use super::cache::{Cache, Sealed};
use super::modules::{self, WANTED};
use super::{tools, tree};

/// A kernel to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    /// A kernel of a Debian package.
    Packaged(&'static Packaged),
    /// A `vmlinuz` with modules beside it or under `/lib/modules`.
    File(PathBuf),
}

/// A Debian package.
#[derive(Debug, PartialEq, Eq)]
pub struct Packaged {
    /// The name for `--kernel`.
    pub name: &'static str,
    /// Meta packages, each depending on a release's newest kernel.
    metas: &'static [&'static str],
    /// Prefix of the package's name: a meta package may depend on another version.
    begins: &'static str,
}

/// Kernels of the cloud flavour, which is smaller: it lacks hardware drivers.
pub static PACKAGED: [Packaged; 2] = [
    Packaged {
        name: "debian-6.1",
        metas: &["linux-image-cloud-amd64", "linux-image-6.1-cloud-amd64"],
        begins: "linux-image-6.1.",
    },
    Packaged {
        name: "debian-6.12",
        metas: &["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"],
        begins: "linux-image-6.12.",
    },
];

impl Default for Kernel {
    fn default() -> Self {
        Kernel::Packaged(&PACKAGED[0])
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Packaged(packaged) => f.write_str(packaged.name),
            Kernel::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(packaged) = PACKAGED.iter().find(|packaged| packaged.name == text) {
            return Ok(Kernel::Packaged(packaged));
        }
        if text.contains('/') && Path::new(text).is_file() {
            return Ok(Kernel::File(PathBuf::from(text)));
        }
        let names: Vec<&str> = PACKAGED.iter().map(|packaged| packaged.name).collect();
        Err(format!("expected auto, host, {} or the path of a kernel image", names.join(", ")))
    }
}

/// Names of kernel, modules' folder and release file in a part.
pub(super) const KERNEL: &str = "kernel";
pub(super) const MODULES: &str = "modules";
pub(super) const RELEASE: &str = "release";

const LAYOUT: &str = "2";

impl Kernel {
    /// Returns kernel and modules from the cache, or fetches them.
    pub fn part(&self, cache: &Cache) -> Result<Sealed, VmError> {
        cache.get(&self.cache_name()?, |folder| match self {
            Kernel::Packaged(packaged) => {
                let apt = Apt::open(cache)?;
                let package = apt.resolve(packaged.metas, packaged.begins)?;
                let unpacked = tools::temporary_folder(cache)?;
                for file in apt.download(&[&package], false)? {
                    apt::unpack(&file, unpacked.path())?;
                }
                let image = boot_image(&unpacked.path().join("boot"))
                    .ok_or_else(|| VmError::Package(format!("the package {package} has no kernel in /boot")))?;
                fill_part(folder, &image)
            }
            Kernel::File(path) => fill_part(folder, path),
        })
    }

    /// Whether the kernel is cached.
    pub fn is_cached(&self, cache: &Cache) -> bool {
        self.cache_name().is_ok_and(|place| cache.find(&place).is_some())
    }

    fn cache_name(&self) -> Result<String, VmError> {
        let wanted = &tree::hash_of([&[LAYOUT], WANTED].concat())[..12];
        match self {
            Kernel::Packaged(packaged) => Ok(format!("packages/{}-{wanted}", packaged.name)),
            Kernel::File(path) => {
                let bytes = fs::read(path).map_err(VmError::io(format!("reading the kernel {}", path.display())))?;
                Ok(format!("packages/file-{}-{wanted}", &tree::hash_of([bytes])[..16]))
            }
        }
    }
}

fn boot_image(folder: &Path) -> Option<PathBuf> {
    let is_kernel =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with("vmlinuz-"));
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(is_kernel)
}

fn fill_part(folder: &Path, image: &Path) -> Result<(), VmError> {
    let kernel = fs::read(image).map_err(VmError::io(format!("reading the kernel {}", image.display())))?;
    let release = bzimage::release(&kernel)
        .ok_or_else(|| VmError::Image(format!("{} is no x86 kernel image (bzImage)", image.display())))?;
    let mut places: Vec<PathBuf> = image.ancestors().skip(1).take(2).map(|up| up.join("lib/modules")).collect();
    places.push(PathBuf::from("/lib/modules"));
    let modules = places.iter().map(|place| place.join(&release)).find(|place| place.is_dir()).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        VmError::Image(format!("the modules of {} are in none of: {}", image.display(), places.join(", ")))
    })?;
    let failed = || VmError::io(format!("writing {}", folder.display()));
    fs::write(folder.join(KERNEL), bzimage::unpacked(&kernel).unwrap_or(kernel)).map_err(failed())?;
    fs::write(folder.join(RELEASE), &release).map_err(failed())?;
    fs::create_dir(folder.join(MODULES)).map_err(failed())?;
    for (number, module) in modules::in_order(&modules, WANTED)?.into_iter().enumerate() {
        let file = format!("{MODULES}/{number:03}-{}.ko", module.name);
        fs::write(folder.join(file), module.object).map_err(failed())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_called_by_name_or_path() {
        assert_eq!("debian-6.12".parse::<Kernel>().unwrap().to_string(), "debian-6.12");
        assert_eq!("/proc/self/exe".parse(), Ok(Kernel::File("/proc/self/exe".into())));
        let refused = "debian-5".parse::<Kernel>().unwrap_err();
        assert_eq!(refused, "expected auto, host, debian-6.1, debian-6.12 or the path of a kernel image");
    }
}
