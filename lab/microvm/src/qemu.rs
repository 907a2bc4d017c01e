//! QEMU's command line. Pure: what each argument is for stands here, who runs it does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;
use super::cache::Cache;
use super::guest::INIT;
use super::tools;

/// How the guest's processor and clock behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// One processor; time is a count of its instructions, and idle time is skipped. The seed decides what the guest's
    /// random numbers are.
    Counted {
        /// The seed.
        seed: u64,
    },
    /// As many processors as are useful; the host's time.
    Host {
        /// With the processor's own virtualization, where that works.
        kvm: bool,
    },
}

/// What is booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel.
    pub kernel: PathBuf,
    /// Its archives.
    pub archive: PathBuf,
    /// Name of the program that is the first process: without blanks.
    pub program: String,
    /// The file that gets what the guest writes to its serial line.
    pub console: PathBuf,
    /// There is a second serial line, which is QEMU's standard input and output.
    pub line: bool,
    /// Processor and clock.
    pub clock: Clock,
    /// Memory in MiB.
    pub memory: u32,
}

/// Memory of a guest, in MiB: three times what an image with debug builds takes unpacked.
pub const MEMORY: u32 = 1024;
/// Processors of a guest on the host's clock: more do not pay under software emulation.
const PROCESSORS: u32 = 2;

/// QEMU as it is to be started: installed on the host, or unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Program and first arguments.
    pub command: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
}

impl Program {
    /// The host's QEMU, or else the one in the cache, which is fetched if it is missing.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn find(cache: &Cache) -> Result<Program, VmError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).map(|folder| folder.join("qemu-system-x86_64"));
        match installed.into_iter().find(|program| program.is_file()) {
            Some(program) => Ok(Program { command: vec![program.display().to_string()], env: Vec::new() }),
            None => Ok(Program::unpacked(&tools::qemu(cache)?.path)),
        }
    }

    /// Its version, such as `7.2.22`; another one may translate, count or seed in its own way.
    ///
    /// # Errors
    /// When it cannot be run.
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

    /// QEMU in a folder: with its own loader and libraries, whatever the host has.
    fn unpacked(folder: &Path) -> Program {
        let at = |name: &str| folder.join(name).display().to_string();
        let command = [
            at("lib/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            at("lib"),
            at("bin/qemu-system-x86_64"),
            "-L".to_owned(),
            at("firmware"),
        ];
        Program { command: command.to_vec(), env: vec![("QEMU_MODULE_DIR".to_owned(), at("modules"))] }
    }
}

/// The kernel's arguments.
fn kernel_arguments(clock: Clock, program: &str) -> String {
    // nokaslr, norandmaps: addresses are no business of the seed, and equal ones are translated once.
    // tsc=reliable: what counts instructions needs no measuring against another clock.
    // nolapic_timer: the HPET's timer instead. To calibrate the processor's own the kernel spins for a tenth of a second,
    // and a pause in a spin is dear under QEMU: three seconds of the host's.
    // no_timer_check: on a busy host an emulated timer may not tick in the moment in which the kernel tries it out, which would
    // be a panic ("IO-APIC + timer doesn't work!").
    // mitigations=off: an emulated processor has nothing to leak, and a page table switch is dear.
    // psi=0, cgroup_disable=memory: their statistics wake an idle machine up, and idle time is what hours consist of.
    let clock = match clock {
        Clock::Counted { .. } => "tsc=reliable nolapic_timer",
        Clock::Host { .. } => "reboot=t no_timer_check",
    };
    format!(
        "console=ttyS0 quiet panic=-1 nokaslr norandmaps {clock} mitigations=off init_on_alloc=0 lsm= audit=0 nowatchdog \
         cryptomgr.notests psi=0 cgroup_disable=memory rdinit=/usr/bin/{program} -- {INIT}"
    )
}

/// Every argument after the program. The processors can make random numbers (`rdrand`), and their timer goes on while they
/// sleep (`arat`): without that the kernel keeps ticking, 250 times a second, and idle time is dear. The machine is `q35`,
/// whose HPET can be set further ahead than any timer of QEMU's `microvm`.
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

/// A machine on the host's own processor.
const KVM: &str = "-M q35 -accel kvm -cpu host";

/// The arguments for trying KVM out: a kernel without an archive, whose every word goes to `console`.
pub(super) fn probe_arguments(kernel: &Path, console: &Path) -> Vec<String> {
    bare(KVM, 256, kernel, console, "console=ttyS0 panic=-1 reboot=t")
}

/// What every machine has: memory in MiB, a kernel, a serial line that goes to a file, and no other device.
fn bare(machine: &str, memory: u32, kernel: &Path, console: &Path, append: &str) -> Vec<String> {
    let fixed = "-nodefaults -no-user-config -nic none -display none -monitor none -no-reboot";
    let mut arguments: Vec<String> = format!("{machine} {fixed}").split_whitespace().map(str::to_owned).collect();
    // A comma ends an option's value; a doubled one is a comma.
    let console = console.display().to_string().replace(',', ",,");
    for (option, value) in [
        ("-m", memory.to_string()),
        // A file takes everything at once: a pipe that is full would be the host's time in the guest.
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
        let saying = |word: &str| Program { command: vec!["echo".to_owned(), word.to_owned()], env: Vec::new() };
        let said = saying("QEMU emulator version 7.2.22 (Debian 1:7.2)").version();
        assert_eq!(said.ok().as_deref(), Some("7.2.22"));
        assert!(saying("what").version().is_err());
    }

    #[test]
    fn an_unpacked_qemu_uses_nothing_of_the_hosts() {
        let program = Program::unpacked(Path::new("/c"));
        let expected = "/c/lib/ld-linux-x86-64.so.2 --library-path /c/lib /c/bin/qemu-system-x86_64 -L /c/firmware";
        assert_eq!(program.command.join(" "), expected);
        assert_eq!(program.env, [("QEMU_MODULE_DIR".to_owned(), "/c/modules".to_owned())]);
    }
}
