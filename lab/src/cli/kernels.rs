//! `svclab kernels`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job::GuestJob;
use svclab_microvm::kernels::{Kernel, PACKAGED};
use svclab_microvm::probe::{self, Abilities};
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{VmError, kvm, launch};
use svclab_netns::sandbox;

use super::guest::open_cache;
use super::{Exit, NAME};

#[derive(Args)]
pub(super) struct KernelsArgs {
    /// Fetch the kernels that are not here yet.
    #[arg(long)]
    fetch: bool,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct ProbeArgs {
    /// The file to write what was found to (`-`: standard output).
    file: PathBuf,
}

/// How long a guest may take to boot and try everything out.
const DEADLINE: Duration = Duration::from_secs(180);

pub(super) fn kernels(args: &KernelsArgs) -> Result<u8, Exit> {
    let unable = |error: VmError| Exit::unable(error.to_string());
    let cache = open_cache(args.cache_dir.as_deref())?;
    match on_host() {
        Ok(abilities) => show("host", &abilities),
        Err(exit) => println!("host\n  {}", exit.message),
    }
    for packaged in &PACKAGED {
        let kernel = Kernel::Packaged(packaged);
        if args.fetch || kernel.is_cached(&cache) {
            show(packaged.name, &inside(&cache, &kernel).map_err(unable)?);
        } else {
            println!("{}\n  not fetched yet: `svclab kernels --fetch`, or the first run, does so", packaged.name);
        }
    }
    Ok(0)
}

fn show(name: &str, abilities: &Abilities) {
    println!("{name} ({})", abilities.release);
    for line in abilities.lines() {
        println!("  {line}");
    }
}

/// What the host's kernel can do, tried out once, in a process of its own: it enters a sandbox.
pub(super) fn on_host() -> Result<Abilities, Exit> {
    static KNOWN: OnceLock<Abilities> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let found = try_host()?;
    Ok(KNOWN.get_or_init(|| found).clone())
}

fn try_host() -> Result<Abilities, Exit> {
    let unable = |problem: String| Exit::unable(format!("cannot try out what this kernel can do: {problem}"));
    let mut command = Command::new("/proc/self/exe");
    command.args(["guest-probe", "-"]).stdin(Stdio::null());
    let output = command.output().map_err(|error| unable(error.to_string()))?;
    if !output.status.success() {
        return Err(unable(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| unable(error.to_string()))
}

/// What `kernel` can do: known from an earlier time, or tried out in a guest.
pub(super) fn inside(cache: &Cache, kernel: &Kernel) -> Result<Abilities, VmError> {
    let own =
        std::env::current_exe().map_err(|source| VmError::Io { attempted: "finding svclab itself".into(), source })?;
    let image = Image::get(cache, kernel, &BTreeMap::from([(NAME.to_owned(), own)]))?;
    let known = cache.folder("abilities")?.join(known_as(image.base()));
    if let Some(abilities) = std::fs::read(&known).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(abilities);
    }
    let job = GuestJob {
        program: NAME.to_owned(),
        args: ["guest-probe", "/out/abilities"].map(str::to_owned).into(),
        results: BTreeMap::from([("abilities".to_owned(), "/out/abilities".to_owned())]),
        ipvs: true,
        ..GuestJob::default()
    };
    let program = QemuProgram::find(cache)?;
    let mut lines = Vec::new();
    let clock = Clock::Host { kvm: kvm::works(cache, &program, &image.kernel()) };
    let ended = launch::run(&program, &image, &job, clock, DEADLINE, &mut |line| lines.push(line.to_owned()))?;
    let failed = || VmError::Guest { why: format!("{kernel} did not say what it can do"), console: lines.join("\n") };
    let text = ended.results.get("abilities").ok_or_else(failed)?;
    let abilities = serde_json::from_slice(text).map_err(|_| failed())?;
    // Losing this costs a boot, no more.
    let _ = std::fs::write(&known, text);
    Ok(abilities)
}

/// The file's name for what a kernel can do: other operations make another.
fn known_as(base: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    probe::operations().hash(&mut hasher);
    format!("{}-{:016x}", &base[..16.min(base.len())], hasher.finish())
}

pub(super) fn probe(args: &ProbeArgs) -> Result<u8, Exit> {
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let text = serde_json::to_string(&probe::all()).map_err(|error| Exit::unable(error.to_string()))?;
    if args.file == Path::new("-") {
        println!("{text}");
        return Ok(0);
    }
    let failed = |error| Exit::unable(format!("cannot write {}: {error}", args.file.display()));
    std::fs::write(&args.file, text).map_err(failed)?;
    Ok(0)
}
