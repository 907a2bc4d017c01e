//! The guest's image: a kernel and an archive of all files. Equal parts give equal bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{Cache, Sealed};
use super::cpio::Archive;
use super::kernels::{KERNEL, Kernel, MODULES};
use super::{VmError, elf, tools, tree};

const LAYOUT: &str = "3";
/// The number of cached images; every build of the programs makes one.
const KEPT: usize = 6;
const ARCHIVE: &str = "initramfs";
/// The folder of modules, named in loading order.
pub(super) const GUEST_MODULES: &str = "usr/lib/modules/svclab";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The dynamic loader (System V ABI for AMD64).
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Programs that link to busybox, unless another package has them.
const APPLETS: &str = "[ awk basename cat chmod clear cp cut date dirname dmesg du echo env expr false find free grep head \
    hostname id kill killall less ln ls lsmod md5sum mkdir mknod modprobe mount mv nc nproc od pgrep pidof ping ping6 printf ps \
    pwd readlink reset rm rmdir sed seq setsid sh sha256sum sleep sort stat stty sync sysctl tail tee test timeout top touch tr \
    traceroute true tty umount uname uniq uptime usleep vi watch wc wget which xargs yes";

/// A built image.
#[derive(Debug, Clone)]
pub struct Image {
    sealed: Sealed,
    base: String,
}

impl Image {
    /// The kernel to boot.
    pub fn kernel(&self) -> PathBuf {
        self.sealed.path.join(KERNEL)
    }

    /// The archive.
    pub fn archive(&self) -> PathBuf {
        self.sealed.path.join(ARCHIVE)
    }

    /// The hash of kernel and archive.
    pub fn hash(&self) -> &str {
        &self.sealed.hash
    }

    /// The hash of everything but the programs.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Takes the image from the cache, or builds it with `programs` (by name) in `/usr/bin`.
    pub fn get(cache: &Cache, kernel: &Kernel, programs: &BTreeMap<String, PathBuf>) -> Result<Image, VmError> {
        let kernel = kernel.part(cache)?;
        let tools = tools::guest(cache)?;
        let mut files = BTreeMap::new();
        for (name, path) in programs {
            let bytes = read(path)?;
            let libraries = if elf::interpreter(&bytes).is_some() { libraries(path, &bytes)? } else { Vec::new() };
            for library in libraries {
                files.insert(merged_usr_path(&library), (read(Path::new(&library))?, library.ends_with(".so.2")));
            }
            // Scripts, which are not ELF, stay unchanged.
            files.insert(format!("usr/bin/{name}"), (elf::loaded_part(&bytes).unwrap_or(bytes), true));
        }
        let mut parts: Vec<&[u8]> = vec![LAYOUT.as_bytes(), kernel.hash.as_bytes(), tools.hash.as_bytes()];
        parts.extend(files.iter().flat_map(|(path, (content, _))| [path.as_bytes(), content.as_slice()]));
        let name = format!("images/{}", &tree::hash_of(parts)[..24]);
        let mut is_new = false;
        let sealed = cache.get(&name, |folder| {
            is_new = true;
            build(folder, &kernel.path, &tools.path, files)
        })?;
        if is_new {
            cache.prune("images", KEPT);
        }
        let base = tree::hash_of([LAYOUT, &kernel.hash, &tools.hash]);
        Ok(Image { sealed, base })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, VmError> {
    fs::read(path).map_err(VmError::io(format!("reading {} for the microVM's image", path.display())))
}

fn build(
    folder: &Path,
    kernel: &Path,
    tools: &Path,
    programs: BTreeMap<String, (Vec<u8>, bool)>,
) -> Result<(), VmError> {
    let archive = archive(kernel, tools, programs)?;
    let failed = || VmError::io(format!("writing {}", folder.display()));
    fs::copy(kernel.join(KERNEL), folder.join(KERNEL)).map_err(failed())?;
    let mut out = BufWriter::new(fs::File::create(folder.join(ARCHIVE)).map_err(failed())?);
    archive.write(&mut out).and_then(|()| std::io::Write::flush(&mut out)).map_err(failed())
}

fn archive(kernel: &Path, tools: &Path, programs: BTreeMap<String, (Vec<u8>, bool)>) -> Result<Archive, VmError> {
    let mut archive = Archive::default();
    for path in ["dev", "proc", "sys", "run", "tmp", "root", "out", "etc", "var/lib", "var/run", "usr/bin", "usr/lib64"]
    {
        archive.directory(path);
    }
    for (link, target) in [("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        archive.link(link, target);
    }
    archive.link("usr/sbin", "bin");
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n".to_vec(), false);
    archive.file("etc/group", b"root:x:0:\n".to_vec(), false);
    archive.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n".to_vec(), false);
    let protocols = b"icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n";
    archive.file("etc/protocols", protocols.to_vec(), false);
    add(&mut archive, &tools.join("bin"), "usr/bin", true)?;
    add(&mut archive, &tools.join("lib"), LIBRARIES, false)?;
    // A dynamic program replaces the tools' loader by the host's.
    archive.file(&format!("usr/lib64/{LOADER}"), read(&tools.join("lib").join(LOADER))?, true);
    add(&mut archive, &tools.join("xtables"), &format!("{LIBRARIES}/xtables"), false)?;
    add(&mut archive, &kernel.join(MODULES), GUEST_MODULES, false)?;
    // Debian's packages link these at installation.
    for name in ["iptables", "ip6tables"] {
        for verb in ["", "-save", "-restore"] {
            archive.link(&format!("usr/bin/{name}{verb}"), "xtables-nft-multi");
        }
    }
    for (path, (content, executable)) in programs {
        archive.file(&path, content, executable);
    }
    for applet in APPLETS.split_whitespace().map(|name| format!("usr/bin/{name}")) {
        if !archive.contains(&applet) {
            archive.link(&applet, "busybox");
        }
    }
    Ok(archive)
}

fn add(archive: &mut Archive, folder: &Path, to: &str, executable: bool) -> Result<(), VmError> {
    let failed = || VmError::io(format!("reading {}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let inside = format!("{to}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_symlink() {
            archive.link(&inside, &fs::read_link(&path).map_err(failed())?.to_string_lossy());
        } else {
            archive.file(&inside, fs::read(&path).map_err(failed())?, executable);
        }
    }
    Ok(())
}

fn libraries(program: &Path, bytes: &[u8]) -> Result<Vec<String>, VmError> {
    let Some(loader) = elf::interpreter(bytes) else { return Ok(Vec::new()) };
    let output = Command::new(&loader).arg("--list").arg(program).output();
    let output = output.map_err(VmError::io(format!("asking {loader} what {} needs", program.display())))?;
    let mut paths = library_paths(&String::from_utf8_lossy(&output.stdout)).map_err(|library| {
        VmError::Image(format!("{} needs the library {library}, which this machine lacks", program.display()))
    })?;
    paths.push(loader);
    Ok(paths)
}

/// Parses the loader's list of libraries; fails if one is missing.
fn library_paths(text: &str) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for (name, found) in text.lines().filter_map(|line| line.trim().split_once(" => ")) {
        match found.split_once(" (") {
            Some((path, _)) => paths.push(path.to_owned()),
            None => return Err(name.to_owned()),
        }
    }
    Ok(paths)
}

fn merged_usr_path(path: &str) -> String {
    let path = path.trim_start_matches('/');
    if path.starts_with("usr/") { path.to_owned() } else { format!("usr/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_tells_where_libraries_are() {
        let text =
            "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld.so (0x7f)\n";
        assert_eq!(library_paths(text).unwrap(), ["/lib/x86_64-linux-gnu/libc.so.6"]);
        assert_eq!(library_paths("\tlibx.so => not found\n"), Err("libx.so".to_owned()));
        assert_eq!(merged_usr_path("/lib/a/libc.so.6"), "usr/lib/a/libc.so.6");
        assert_eq!(merged_usr_path("/usr/lib/a/libz.so"), "usr/lib/a/libz.so");
    }

    #[test]
    fn tools_have_their_loader_whatever_the_programs_bring() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&format!("tools/lib/{LOADER}"), "Debian's");
        write("tools/bin/nft", "dynamic");
        write("tools/xtables/libxt_comment.so", "");
        write(&format!("kernel/{MODULES}/0.ko"), "");
        let of = |programs: &[(&str, &str)]| {
            let bytes = |(path, text): &(&str, &str)| ((*path).to_owned(), (text.as_bytes().to_vec(), true));
            let programs = programs.iter().map(bytes).collect();
            archive(&folder.path().join("kernel"), &folder.path().join("tools"), programs).unwrap()
        };
        let path = format!("usr/lib64/{LOADER}");
        let is = |archive: &Archive, text: &str| {
            let mut expected = archive.clone();
            expected.file(&path, text.as_bytes().to_vec(), true);
            *archive == expected
        };
        assert!(is(&of(&[("usr/bin/svclab", "static")]), "Debian's"));
        assert!(is(&of(&[("usr/bin/svclab", "dynamic"), (&path, "this machine's")]), "this machine's"));
    }

    #[test]
    fn this_machines_own_libraries_are_found() {
        let program = std::env::current_exe().unwrap();
        let found = libraries(&program, &fs::read(&program).unwrap()).unwrap();
        assert!(found.iter().any(|path| path.contains("libc.so")), "{found:?}");
    }
}
