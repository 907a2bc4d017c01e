//! `--cluster`: one report of many archives, which are read and audited one at a time.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use svclab_audit::audit::{AuditOptions, audit};
use svclab_audit::fleet::{self, ClusterAudit, ClusterReport};
use svclab_snapshot::Snapshot;
use svclab_snapshot::archive::{ArchiveError, archive_name, read_each};

use super::AuditFormat;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::schedule::output;

pub(super) fn run(from: &Path, options: &AuditOptions, format: AuditFormat, to: Option<&Path>) -> Result<u8, Exit> {
    let render = renderer(format)?;
    let report = report(from, options)?;
    output::write(Some(to.unwrap_or(Path::new("-"))), &render(&report)?)?;
    Ok(match (report.is_clean(), report.is_complete()) {
        (false, _) => FAILED,
        (true, true) => 0,
        (true, false) => UNABLE,
    })
}

type Renderer = fn(&ClusterReport) -> Result<String, Exit>;

fn renderer(format: AuditFormat) -> Result<Renderer, Exit> {
    match format {
        AuditFormat::Text => Ok(|report| Ok(fleet::text(report))),
        AuditFormat::Markdown => Ok(|report| Ok(fleet::markdown(report))),
        AuditFormat::Json => Ok(|report| {
            let text = serde_json::to_string_pretty(report).map_err(|error| Exit::unable(error.to_string()))?;
            Ok(text + "\n")
        }),
        AuditFormat::Junit | AuditFormat::Sarif | AuditFormat::Html => Err(Exit::usage(
            "--cluster has the forms text, json and markdown; for another, audit the archives one by one",
        )),
    }
}

fn report(from: &Path, options: &AuditOptions) -> Result<ClusterReport, Exit> {
    let mut cluster = ClusterAudit::default();
    let mut archives = 0;
    let mut take = |name: &str, snapshot: Result<Snapshot, ArchiveError>| {
        archives += 1;
        let audited = snapshot
            .map_err(|error| error.to_string())
            .and_then(|snapshot| audit(&snapshot, options).map_err(|error| error.to_string()));
        cluster.add(name, audited);
    };
    let wrong = |why: String| Exit::usage(format!("--cluster {}: {why}", from.display()));
    if from.as_os_str() == "-" {
        read_each(std::io::stdin().lock(), take).map_err(|error| wrong(error.to_string()))?;
    } else {
        for path in archives_in(from).map_err(|error| wrong(format!("cannot be listed: {error}")))? {
            let name = archive_name(&path).unwrap_or_default();
            let opened = File::open(&path).map_err(ArchiveError::NotATar);
            take(&name, opened.and_then(|file| Snapshot::read(BufReader::new(file))));
        }
    }
    if archives == 0 {
        return Err(wrong("there is no NODE.tar: `svclab collect NODE.tar` writes one on each node".to_owned()));
    }
    Ok(cluster.report())
}

fn archives_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths = folder.read_dir()?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    let mut archives: Vec<PathBuf> = paths.into_iter().filter(|path| archive_name(path).is_some()).collect();
    archives.sort();
    Ok(archives)
}
