//! PID 1 of a microVM: loads modules, runs the job, sends the results over the serial line, powers off.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use svclab_netns::sandbox::WHOLE_MACHINE;

use super::console;
use super::image::GUEST_MODULES;
use super::job::{GuestJob, PLACE};

/// Exit status if the job cannot start.
const UNABLE: u8 = 3;

/// Settings below `/proc/sys` (`Documentation/admin-guide/sysctl/`); missing ones are skipped.
const SETTINGS: [(&str, &str); 7] = [
    // Out of memory, the kernel must not kill the tested proxy.
    ("vm/panic_on_oom", "1"),
    // The kernel must load no modules, because PID 1 does.
    ("kernel/modprobe", "\n"),
    // Disables timers that wake idle machines several times a second.
    ("vm/compaction_proactiveness", "0"),
    ("vm/stat_interval", "3600"),
    ("vm/dirty_writeback_centisecs", "0"),
    ("net/ipv4/neigh/default/interval_probe_time_ms", "3600000"),
    ("net/ipv6/neigh/default/interval_probe_time_ms", "3600000"),
];

/// Beginnings of the names of IPVS modules.
const IPVS: [&str; 2] = ["ip_vs", "xt_ipvs"];

/// The first process's only argument.
pub const INIT: &str = "guest-init";

/// Runs PID 1. Returns an error message if this process is not PID 1.
pub fn init() -> String {
    if nix::unistd::getpid().as_raw() != 1 {
        return format!("{INIT} is the first process of a microVM, and is started by its kernel");
    }
    if let Err(error) = work() {
        let _ = console::text(&mut io::stdout(), &format!("the microVM's first process failed: {error}"));
        let _ = console::results(&mut io::stdout(), UNABLE, &BTreeMap::new());
    }
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(error) => format!("cannot power off: {error}"),
    }
}

fn work() -> io::Result<()> {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(Some(kind), at, Some(kind), MsFlags::empty(), None::<&str>)?;
    }
    for (setting, value) in SETTINGS {
        match fs::write(Path::new("/proc/sys").join(setting), value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let job: GuestJob = serde_json::from_slice(&fs::read(Path::new("/").join(PLACE))?)?;
    load_modules(&Path::new("/").join(GUEST_MODULES), job.ipvs)?;
    let mut line = File::options().write(true).open("/dev/ttyS0")?;
    let status = run(&job, &mut line)?;
    // Kernel messages must not interrupt a result.
    fs::write("/proc/sys/kernel/printk", "1")?;
    let mut results = BTreeMap::new();
    for (name, path) in &job.results {
        if let Ok(content) = fs::read(path) {
            results.insert(name.clone(), content);
        }
    }
    console::results(&mut line, status, &results)?;
    nix::sys::termios::tcdrain(&line)?;
    Ok(())
}

fn load_modules(folder: &Path, ipvs: bool) -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    let is_ipvs = |file: &PathBuf| IPVS.iter().any(|part| file.to_string_lossy().contains(part));
    for file in files.into_iter().filter(|file| ipvs || !is_ipvs(file)) {
        // Ignored: hardware may be missing, or the module loaded already.
        if let Err(error) = nix::kmod::finit_module(&File::open(&file)?, c"", nix::kmod::ModuleInitFlags::empty()) {
            console::text(&mut io::stdout(), &format!("module {}: {error}", file.display()))?;
        }
    }
    Ok(())
}

fn run(job: &GuestJob, line: &mut impl Write) -> io::Result<u8> {
    let mut child = Command::new(Path::new("/usr/bin").join(&job.program))
        .args(&job.args)
        .current_dir(GuestJob::directory())
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin"), ("HOME", "/root")])
        .env(WHOLE_MACHINE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(errors) = child.stderr.take() {
        for text in BufReader::new(errors).lines() {
            console::text(line, &text?)?;
        }
    }
    let status = child.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(UNABLE));
    Ok(u8::try_from(code).unwrap_or(UNABLE))
}
