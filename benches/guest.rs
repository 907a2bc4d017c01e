//! Measures IPVS mode in a microVM. Its processor may be emulated, so only a time's ratio to its floor is meaningful.

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
use crate::results::{Detail, PointId};
use crate::sandbox;
use crate::subject::IPVS;

const INSIDE: &str = "--inside-guest";
const LAB: &str = "svclab";
const MARK: &str = "measured: ";
const SAMPLES: usize = 9;
/// Exit status of `svclab` where no microVM can be started.
const UNABLE: i32 = 3;
const DEADLINE: Duration = Duration::from_secs(900);

#[derive(Debug, Serialize, Deserialize)]
struct MeasuredPoint {
    id: String,
    took: Vec<Duration>,
    detail: Option<Detail>,
}

/// Writes points to standard error, the only output of a guest.
struct GuestPoints;

impl Points for GuestPoints {
    fn point(&mut self, id: &PointId, once: &mut dyn FnMut() -> Result<(Duration, Detail)>) -> Result<bool> {
        let (mut took, mut details) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            let (time, detail) = once()?;
            took.push(time);
            details.push(detail);
        }
        let line = serde_json::to_string(&MeasuredPoint { id: id.to_string(), took, detail: Detail::median(details) })?;
        writeln!(std::io::stderr(), "{MARK}{line}").context("write a line")?;
        Ok(true)
    }
}

pub fn role() -> Option<Result<ExitCode>> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new(LAB)) {
        return Some(Ok(svclab::cli::main()));
    }
    (arguments.next()?.to_str() == Some(INSIDE)).then(|| {
        sandbox::is_guest();
        ladder::guest(&mut GuestPoints)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the parts that were left out, with reasons.
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

/// Returns the points by id, or why no microVM can be started.
fn boot() -> Result<Result<BTreeMap<String, MeasuredPoint>, String>> {
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
        let measured: MeasuredPoint = serde_json::from_str(line).with_context(|| format!("read {line}"))?;
        all.insert(measured.id.clone(), measured);
    }
    Ok(Ok(all))
}
