//! The abilities of kernels: the host's and those of microVMs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job;
use svclab_microvm::kernels::Kernel;
use svclab_microvm::probe::{self, Abilities};
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{VmError, kvm, launch};
use svclab_netns::sandbox;

use super::NAME;
use crate::exit::Exit;

/// The hidden subcommand that probes its own kernel.
pub(crate) const PROBE: &str = "guest-probe";
const RESULT: &str = "/out/abilities";
/// The limit for a guest's boot and probe.
const DEADLINE: Duration = Duration::from_secs(180);

/// Returns the host's abilities, which another process probes once, in a sandbox.
pub(crate) fn of_host() -> Result<Abilities, Exit> {
    static KNOWN: OnceLock<Abilities> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let unable = |problem: String| Exit::unable(format!("cannot try out what this kernel can do: {problem}"));
    let mut command = Command::new("/proc/self/exe");
    let output = command.args([PROBE, "-"]).stdin(Stdio::null()).output().map_err(|error| unable(error.to_string()))?;
    if !output.status.success() {
        return Err(unable(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let found = serde_json::from_slice(&output.stdout).map_err(|error| unable(error.to_string()))?;
    Ok(KNOWN.get_or_init(|| found).clone())
}

/// Returns the abilities of a microVM's kernel, from the cache or probed in a guest.
pub(crate) fn of_guest(cache: &Cache, kernel: &Kernel) -> Result<Abilities, VmError> {
    let own =
        std::env::current_exe().map_err(|source| VmError::Io { attempted: "finding svclab itself".into(), source })?;
    let image = Image::get(cache, kernel, &BTreeMap::from([(NAME.to_owned(), own)]))?;
    let known = cache.folder("abilities")?.join(cache_name(image.base()));
    if let Some(abilities) = std::fs::read(&known).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(abilities);
    }
    let job = job::GuestJob {
        program: NAME.to_owned(),
        args: [PROBE, RESULT].map(str::to_owned).into(),
        results: BTreeMap::from([("abilities".to_owned(), RESULT.to_owned())]),
        ipvs: true,
        ..job::GuestJob::default()
    };
    let program = QemuProgram::find(cache)?;
    let mut lines = Vec::new();
    let clock = Clock::Host { kvm: kvm::works(cache, &program, &image.kernel()) };
    let ended = launch::run(&program, &image, &job, clock, DEADLINE, &mut |line| lines.push(line.to_owned()))?;
    let failed = || VmError::Guest { why: format!("{kernel} did not say what it can do"), console: lines.join("\n") };
    let text = ended.results.get("abilities").ok_or_else(failed)?;
    let abilities = serde_json::from_slice(text).map_err(|_| failed())?;
    // A failed write only costs another boot.
    let _ = std::fs::write(&known, text);
    Ok(abilities)
}

/// Returns the name of the abilities' file in the cache, which depends on the operations that the probe tries.
fn cache_name(base: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    probe::operations().hash(&mut hasher);
    format!("{}-{:016x}", &base[..16.min(base.len())], hasher.finish())
}

/// Probes this process's kernel in a sandbox and writes the abilities to `file` (`-`: standard output).
pub(crate) fn probe(file: &Path) -> Result<u8, Exit> {
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let text = serde_json::to_string(&probe::all()).map_err(|error| Exit::unable(error.to_string()))?;
    if file == Path::new("-") {
        println!("{text}");
        return Ok(0);
    }
    std::fs::write(file, text).map_err(|error| Exit::unable(format!("cannot write {}: {error}", file.display())))?;
    Ok(0)
}
