//! Whether KVM works. On virtual hosts `/dev/kvm` may exist although guests crash, so this boots a kernel without an
//! archive, which takes less than a second.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use super::cache::Cache;
use super::launch;
use super::qemu::{self, QemuProgram};

/// The message of a kernel without archive and disk (`mount_root_generic` in `init/do_mounts.c`).
const BOOTED: &str = "Unable to mount root fs";
const DEADLINE: Duration = Duration::from_secs(10);
/// Identifies the host's boot, for which results are valid.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Whether `kernel` boots. Tested once per boot of the host.
pub fn works(cache: &Cache, program: &QemuProgram, kernel: &Path) -> bool {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let known = cache.folder("abilities").ok().zip(fs::read_to_string(BOOT_ID).ok());
    let known = known.map(|(folder, boot)| folder.join(format!("kvm-{}", boot.trim())));
    let told = known.as_ref().and_then(|known| fs::read_to_string(known).ok());
    told.map_or_else(
        || {
            let works = boots(program, kernel, DEADLINE);
            let _ = known.map(|known| fs::write(known, if works { "yes\n" } else { "no\n" }));
            works
        },
        |told| told == "yes\n",
    )
}

fn boots(program: &QemuProgram, kernel: &Path, deadline: Duration) -> bool {
    let Ok(console) = launch::memory_file("console") else { return false };
    let arguments = qemu::probe_arguments(kernel, &launch::inherited_path(&console));
    let Ok(child) = launch::start(program, &arguments) else { return false };
    let mut guest = launch::Guest::new(child, console);
    let (end, mut said) = (Instant::now() + deadline, Vec::new());
    loop {
        // Checked before reading, so that the output is complete.
        let over = guest.is_over();
        said.extend(guest.new_output().unwrap_or_default());
        if String::from_utf8_lossy(&said).contains(BOOTED) {
            return true;
        }
        if over || Instant::now() >= end {
            return false;
        }
        std::thread::sleep(launch::POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a fake QEMU: a script with the console's path that runs `rest`.
    fn pretending(rest: &str) -> QemuProgram {
        let find = "for word; do case $word in file,*path=*) console=${word##*path=};; esac; done";
        let command = ["sh", "-c", &format!("{find}; {rest}"), "qemu"].map(str::to_owned);
        QemuProgram { command: command.into(), env: Vec::new() }
    }

    #[test]
    fn only_a_kernel_that_came_to_its_end_has_booted() {
        let try_out = |rest: &str| boots(&pretending(rest), Path::new("/k"), Duration::from_millis(300));
        assert!(boots(
            &pretending("echo 'VFS: Unable to mount root fs on unknown-block(0,0)' > $console"),
            Path::new("/k"),
            DEADLINE
        ));
        assert!(!try_out("echo Linux version 6.1 > $console"), "it ended on the way");
        assert!(!try_out("exec sleep 60"), "it hangs");
        assert!(!try_out("exit 1"), "KVM is refused");
        let nothing = QemuProgram { command: vec!["/proc/nowhere/qemu".to_owned()], env: Vec::new() };
        assert!(!boots(&nothing, Path::new("/k"), DEADLINE));
    }
}
