//! Whether KVM works here. That `/dev/kvm` can be opened says little: on machines that are guests themselves it may be there
//! and every guest die. So a kernel is booted as far as it comes without an archive, which takes KVM less than a second.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use super::cache::Cache;
use super::launch;
use super::qemu::{self, Program};

/// The last word of a kernel that found neither archive nor disk (`mount_root_generic` in `init/do_mounts.c`).
const BOOTED: &str = "Unable to mount root fs";
/// Ten times what a boot takes, with hardware that works.
const DEADLINE: Duration = Duration::from_secs(10);
/// Tells this start of the machine from the next: another host kernel, or another host, may do better.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Whether `kernel` boots under KVM. Tried out once per start of the machine.
pub fn works(cache: &Cache, program: &Program, kernel: &Path) -> bool {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let known = cache.folder("abilities").ok().zip(fs::read_to_string(BOOT_ID).ok());
    let known = known.map(|(folder, boot)| folder.join(format!("kvm-{}", boot.trim())));
    let told = known.as_ref().and_then(|known| fs::read_to_string(known).ok());
    told.map_or_else(
        || {
            let works = boots(program, kernel, DEADLINE);
            // Losing the answer costs another try, no more.
            let _ = known.map(|known| fs::write(known, if works { "yes\n" } else { "no\n" }));
            works
        },
        |told| told == "yes\n",
    )
}

/// Whether the kernel comes to its last word before `deadline`.
fn boots(program: &Program, kernel: &Path, deadline: Duration) -> bool {
    let Ok(console) = launch::memory("console") else { return false };
    let arguments = qemu::probe_arguments(kernel, &launch::inherited(&console));
    let Ok(child) = launch::start(program, &arguments) else { return false };
    let mut guest = launch::Guest::new(child, console);
    let (end, mut said) = (Instant::now() + deadline, Vec::new());
    loop {
        // Asked first: what it wrote before its end is then all there.
        let over = guest.is_over();
        said.extend(guest.news().unwrap_or_default());
        if String::from_utf8_lossy(&said).contains(BOOTED) {
            return true;
        }
        if over || Instant::now() >= end {
            return false;
        }
        std::thread::sleep(launch::LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that finds its console among QEMU's arguments and then does `rest`.
    fn pretending(rest: &str) -> Program {
        let find = "for word; do case $word in file,*path=*) console=${word##*path=};; esac; done";
        let command = ["sh", "-c", &format!("{find}; {rest}"), "qemu"].map(str::to_owned);
        Program { command: command.into(), env: Vec::new() }
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
        let nothing = Program { command: vec!["/no/such/qemu".to_owned()], env: Vec::new() };
        assert!(!boots(&nothing, Path::new("/k"), DEADLINE));
    }
}
