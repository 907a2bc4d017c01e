//! QEMU's command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;
use super::cache::Cache;
use super::guest::INIT;
use super::tools;

/// Processors and clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// One processor, whose instruction count is the time. Idle time is skipped.
    Counted {
        /// The seed of random numbers.
        seed: u64,
    },
    /// Several processors and the host's clock.
    Host {
        /// Hardware virtualization.
        kvm: bool,
    },
}

/// Parameters of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel.
    pub kernel: PathBuf,
    /// The archives.
    pub archive: PathBuf,
    /// First process, without spaces.
    pub program: String,
    /// File for the serial line's output.
    pub console: PathBuf,
    /// A second serial line, on standard input and output.
    pub line: bool,
    /// Processors and clock.
    pub clock: Clock,
    /// In MiB.
    pub memory: u32,
}

/// In MiB: three times the unpacked size of an image with debug builds.
pub const MEMORY: u32 = 1024;
/// More processors are no faster under emulation.
const PROCESSORS: u32 = 2;

/// How to start QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QemuProgram {
    /// Program and first arguments.
    pub command: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
}

impl QemuProgram {
    /// Returns the host's QEMU, else a cached or fetched one.
    pub fn find(cache: &Cache) -> Result<QemuProgram, VmError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).map(|folder| folder.join("qemu-system-x86_64"));
        match installed.into_iter().find(|program| program.is_file()) {
            Some(program) => Ok(QemuProgram { command: vec![program.display().to_string()], env: Vec::new() }),
            None => Ok(QemuProgram::unpacked(&tools::qemu(cache)?.path)),
        }
    }

    /// Returns the version, such as `7.2.22`; emulation, instruction counts and seeds depend on it.
    pub fn version(&self) -> Result<String, VmError> {
        let (name, first) = self.command.split_first().ok_or_else(|| VmError::Qemu("no QEMU is named".to_owned()))?;
        let output = Command::new(name).args(first).arg("--version").envs(self.env.iter().cloned()).output();
        let output = output.map_err(|error| VmError::Qemu(format!("cannot start QEMU ({name}): {error}")))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.split_once(" version ").and_then(|(_, rest)| rest.split_whitespace().next());
        version.map(str::to_owned).ok_or_else(|| {
            let complaint = String::from_utf8_lossy(&output.stderr);
            VmError::Qemu(format!("{name} --version tells no version: {}", complaint.trim()))
        })
    }

    fn unpacked(folder: &Path) -> QemuProgram {
        let at = |name: &str| folder.join(name).display().to_string();
        let command = [
            at("lib/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            at("lib"),
            at("bin/qemu-system-x86_64"),
            "-L".to_owned(),
            at("firmware"),
        ];
        QemuProgram { command: command.to_vec(), env: vec![("QEMU_MODULE_DIR".to_owned(), at("modules"))] }
    }
}

fn kernel_arguments(clock: Clock, program: &str) -> String {
    // nokaslr, norandmaps: addresses do not depend on the seed; QEMU translates equal ones once.
    // tsc=reliable: an instruction count needs no comparison with another clock.
    // nolapic_timer: uses the HPET. Calibrating the local timer spins for 100 ms with pauses: three seconds in QEMU.
    // no_timer_check: on a busy host the kernel may miss the tested tick and panic.
    // mitigations=off: an emulated processor leaks nothing, and page table switches are slow.
    // psi=0, cgroup_disable=memory: these statistics wake idle machines.
    let clock = match clock {
        Clock::Counted { .. } => "tsc=reliable nolapic_timer",
        Clock::Host { .. } => "reboot=t no_timer_check",
    };
    format!(
        "console=ttyS0 quiet panic=-1 nokaslr norandmaps {clock} mitigations=off init_on_alloc=0 lsm= audit=0 nowatchdog \
         cryptomgr.notests psi=0 cgroup_disable=memory rdinit=/usr/bin/{program} -- {INIT}"
    )
}

/// Returns QEMU's arguments. `rdrand` gives random numbers; without `arat` the kernel ticks 250 times a second. `q35`
/// has an HPET with sufficient range.
pub fn arguments(boot: &Boot) -> Vec<String> {
    let machine = match boot.clock {
        Clock::Counted { seed } => format!(
            "-M q35 -accel tcg,thread=single -smp 1 -cpu Nehalem-v1,+rdrand,+arat -seed {seed} \
             -icount shift=1,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm"
        ),
        Clock::Host { kvm: true } => format!("{KVM} -smp {PROCESSORS}"),
        Clock::Host { kvm: false } => {
            format!("-M q35 -accel tcg,thread=multi -smp {PROCESSORS} -cpu Westmere-v1,+rdrand,+arat")
        }
    };
    let mut arguments =
        bare(&machine, boot.memory, &boot.kernel, &boot.console, &kernel_arguments(boot.clock, &boot.program));
    arguments.extend(["-initrd".to_owned(), boot.archive.display().to_string()]);
    if boot.line {
        let second = ["-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line"];
        arguments.extend(second.map(str::to_owned));
    }
    arguments
}

const KVM: &str = "-M q35 -accel kvm -cpu host";

pub(super) fn probe_arguments(kernel: &Path, console: &Path) -> Vec<String> {
    bare(KVM, 256, kernel, console, "console=ttyS0 panic=-1 reboot=t")
}

/// Returns arguments for a machine without other devices.
fn bare(machine: &str, memory: u32, kernel: &Path, console: &Path, append: &str) -> Vec<String> {
    let fixed = "-nodefaults -no-user-config -nic none -display none -monitor none -no-reboot";
    let mut arguments: Vec<String> = format!("{machine} {fixed}").split_whitespace().map(str::to_owned).collect();
    let console = console.display().to_string().replace(',', ",,");
    for (option, value) in [
        ("-m", memory.to_string()),
        // A file, because a full pipe would stop the guest.
        ("-chardev", format!("file,id=console,path={console}")),
        ("-serial", "chardev:console".to_owned()),
        ("-kernel", kernel.display().to_string()),
        ("-append", append.to_owned()),
    ] {
        arguments.extend([option.to_owned(), value]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(clock: Clock) -> Boot {
        Boot {
            program: "svclab".to_owned(),
            kernel: "/c/vmlinuz".into(),
            archive: "/proc/self/fd/5".into(),
            console: "/a,b".into(),
            line: false,
            clock,
            memory: 512,
        }
    }

    #[test]
    fn the_deterministic_machine() {
        insta::assert_snapshot!(arguments(&boot(Clock::Counted { seed: 7 })).join("\n"));
    }

    #[test]
    fn the_fast_machine() {
        insta::assert_snapshot!(arguments(&boot(Clock::Host { kvm: false })).join("\n"));
    }

    #[test]
    fn the_machine_on_the_hosts_own_processor() {
        let arguments = arguments(&boot(Clock::Host { kvm: true })).join(" ");
        assert!(arguments.starts_with("-M q35 -accel kvm -cpu host -smp 2 -nodefaults"), "{arguments}");
    }

    #[test]
    fn a_second_line_comes_after_the_console() {
        let boot = Boot { line: true, ..boot(Clock::Host { kvm: false }) };
        let arguments = arguments(&boot).join(" ");
        let (console, line) = arguments.split_once("-serial chardev:console").unwrap();
        assert!(!console.contains("stdio") && line.ends_with("-chardev stdio,id=line,signal=off -serial chardev:line"));
    }

    #[test]
    fn a_qemu_tells_its_version() {
        let saying = |word: &str| QemuProgram { command: vec!["echo".to_owned(), word.to_owned()], env: Vec::new() };
        let said = saying("QEMU emulator version 7.2.22 (Debian 1:7.2)").version();
        assert_eq!(said.ok().as_deref(), Some("7.2.22"));
        assert!(saying("what").version().is_err());
    }

    #[test]
    fn an_unpacked_qemu_uses_nothing_of_the_hosts() {
        let program = QemuProgram::unpacked(Path::new("/c"));
        let expected = "/c/lib/ld-linux-x86-64.so.2 --library-path /c/lib /c/bin/qemu-system-x86_64 -L /c/firmware";
        assert_eq!(program.command.join(" "), expected);
        assert_eq!(program.env, [("QEMU_MODULE_DIR".to_owned(), "/c/modules".to_owned())]);
    }
}
