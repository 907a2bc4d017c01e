//! Runs this very program on Debian's kernel, whatever the host's is, twice with the same seed:
//! `cargo run -p svclab-microvm --example other_kernel`. The first time fetches kernel and tools into the cache.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job::Job;
use svclab_microvm::kernels::Kernel;
use svclab_microvm::qemu::{Clock, Program};
use svclab_microvm::{guest, launch};

/// What the program is called inside.
const NAME: &str = "example";
/// What it is to do there.
const WORK: &str = "work";

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        // The microVM's kernel has started it as the first process.
        Some(guest::INIT) => Err(guest::init().into()),
        Some(WORK) => work(),
        _ => host(),
    }
}

fn host() -> Result<(), Box<dyn Error>> {
    let cache = Cache::open(None)?;
    let kernel: Kernel = Kernel::default();
    let image = Image::get(&cache, &kernel, &BTreeMap::from([(NAME.to_owned(), std::env::current_exe()?)]))?;
    let qemu = Program::find(&cache)?;
    let job = Job {
        program: NAME.to_owned(),
        args: vec![WORK.to_owned()],
        results: BTreeMap::from([("found".to_owned(), "/out/found".to_owned())]),
        ..Job::default()
    };
    for _ in 0..2 {
        let clock = Clock::Counted { seed: 7 };
        let ended = launch::run(&qemu, &image, &job, clock, Duration::from_secs(120), &mut |line| eprintln!("{line}"))?;
        let found = ended.results.get("found").map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        println!("status {}: {}", ended.status, found.unwrap_or_default());
    }
    Ok(())
}

/// The kernel's release, the time, and eight bytes that the kernel has drawn: the same for the same seed.
fn work() -> Result<(), Box<dyn Error>> {
    use std::io::Read;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut drawn = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    eprintln!("at work on {}", release.trim());
    std::fs::write("/out/found", format!("Linux {}, {} ns, {drawn:02x?}", release.trim(), now.as_nanos()))?;
    Ok(())
}
