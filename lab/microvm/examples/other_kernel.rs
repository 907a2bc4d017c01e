//! Runs itself on Debian's kernel, twice with one seed: `cargo run -p svclab-microvm --example other_kernel`. The
//! first run fetches kernel and tools.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use svclab_microvm::cache::Cache;
use svclab_microvm::image::Image;
use svclab_microvm::job::GuestJob;
use svclab_microvm::kernels::Kernel;
use svclab_microvm::qemu::{Clock, QemuProgram};
use svclab_microvm::{guest, launch};

const NAME: &str = "example";
const WORK: &str = "work";

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        // The guest's kernel started this process.
        Some(guest::INIT) => Err(guest::init().into()),
        Some(WORK) => work(),
        _ => host(),
    }
}

fn host() -> Result<(), Box<dyn Error>> {
    let cache = Cache::open(None)?;
    let kernel: Kernel = Kernel::default();
    let image = Image::get(&cache, &kernel, &BTreeMap::from([(NAME.to_owned(), std::env::current_exe()?)]))?;
    let qemu = QemuProgram::find(&cache)?;
    let job = GuestJob {
        program: NAME.to_owned(),
        args: vec![WORK.to_owned()],
        results: BTreeMap::from([("found".to_owned(), "/out/found".to_owned())]),
        ..GuestJob::default()
    };
    for _ in 0..2 {
        let clock = Clock::Counted { seed: 7 };
        let ended = launch::run(&qemu, &image, &job, clock, Duration::from_secs(120), &mut |line| eprintln!("{line}"))?;
        let found = ended.results.get("found").map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        println!("status {}: {}", ended.status, found.unwrap_or_default());
    }
    Ok(())
}

/// Prints release, time and random bytes; equal seeds print equal values.
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
