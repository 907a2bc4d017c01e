//! IPVS mode, in a microVM: this machine's kernel may have no IPVS. The clock there is the host's, the processor may be an emulated
//! one, so a time says nothing by itself; its ratio to the floor does.
//!
//! The program that measures is this one: it is its own `svclab`, which boots the microVM and starts programs in it, and it is what is
//! started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::ladder;
use crate::measure::{Bench, Points};
use crate::results::{Detail, Id};
use crate::sandbox;
use crate::subject::IPVS;

/// Its only argument in the guest.
const INSIDE: &str = "--inside-guest";
/// The name under which a guest's image has `svclab`.
const LAB: &str = "svclab";
/// Begins a line that is a measured point.
const MARK: &str = "measured: ";
/// Each point is measured so often.
const SAMPLES: usize = 9;
/// Exit status of `svclab` where there is no microVM to be had.
const UNABLE: i32 = 3;
/// A boot, and all points, on a busy machine without KVM.
const DEADLINE: Duration = Duration::from_secs(900);

/// One point, as a line.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    id: String,
    took: Vec<Duration>,
    detail: Option<Detail>,
}

/// Writes what is measured to standard error, which is what comes out of a guest.
struct Lines;

impl Points for Lines {
    fn point(&mut self, id: &Id, once: &mut dyn FnMut() -> Result<(Duration, Detail)>) -> Result<bool> {
        let (mut took, mut details) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            let (time, detail) = once()?;
            took.push(time);
            details.push(detail);
        }
        let line = serde_json::to_string(&Measured { id: id.to_string(), took, detail: Detail::median(details) })?;
        writeln!(std::io::stderr(), "{MARK}{line}").context("write a line")?;
        Ok(true)
    }
}

/// What this process is to be, if it was started as `svclab`, or in a guest.
pub fn role() -> Option<Result<ExitCode>> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new(LAB)) {
        return Some(Ok(svclab::cli::main()));
    }
    (arguments.next()?.to_str() == Some(INSIDE)).then(|| {
        sandbox::is_guest();
        ladder::guest(&mut Lines)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Measures in a microVM, which is booted only if the command line selects one of the points; returns what had to be left out.
///
/// # Errors
/// When something that is measured fails.
pub fn run(bench: &mut Bench) -> Result<Vec<String>> {
    let mut guest = None;
    for (id, size) in ladder::guest_points() {
        let point = bench.point(&id, &mut || {
            let measured = match &mut guest {
                Some(measured) => measured,
                None => guest.insert(boot()?),
            };
            let Ok(measured) = measured else { bail!("no microVM") };
            let one = measured.get_mut(&id.to_string()).with_context(|| format!("{id} was not measured"))?;
            one.took.rotate_left(1);
            Ok((*one.took.first().context("a sample")?, one.detail.unwrap_or_default()))
        });
        match (point, &guest) {
            (Err(_), Some(Err(why))) => return Ok(vec![format!("{}: {why}", IPVS.name)]),
            (result, _) => result.with_context(|| size.to_string())?,
        };
    }
    Ok(Vec::new())
}

/// What was measured in a microVM, by id; or why there is none.
fn boot() -> Result<Result<BTreeMap<String, Measured>, String>> {
    let own = std::env::current_exe().context("find this program's own path")?;
    let mut command = Command::new(&own);
    command.arg0(LAB).args(["guest-run", "--deadline", &DEADLINE.as_secs().to_string(), "--"]).arg(&own).arg(INSIDE);
    let output = command.output().context("start this program as svclab")?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(UNABLE) => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            return Ok(Err(format!("there is no microVM to be had: {last}")));
        }
        status => bail!("the microVM ended with {status:?}:\n{text}"),
    }
    let mut all = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix(MARK)) {
        let measured: Measured = serde_json::from_str(line).with_context(|| format!("read {line}"))?;
        all.insert(measured.id.clone(), measured);
    }
    Ok(Ok(all))
}
