//! Audits nodes: collects each like `svclab collect`, and judges its rules.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use futures_util::future::try_join_all;
use k8s_openapi::serde::de::DeserializeOwned;
use svclab_apiserver::objects::{ObjectKind, Store};
use svclab_audit::audit::{AuditOptions, Finding, Report, audit};
use svclab_snapshot::{Objects, Snapshot};

use super::error::LabError;
use super::lab::KernelLab;
use crate::mode::Mode;
use crate::scenario::Step;
use crate::scenario::audited;
use crate::scenario::execute::StepOutcome;
use crate::scenario::file::{Action, ExpectFile, StepKey};
use crate::scenario::values::OneOrMany;

/// How long rules may be wrong after a step with `--audit`: a proxy may still work after reporting the change.
const SETTLES: Duration = Duration::from_secs(10);
/// The pause between two attempts, each of which runs the node's tools.
const PAUSE: Duration = Duration::from_millis(500);
/// A settling time that excludes no object: the proxies have applied all.
const NEVER_TOO_NEW: i64 = i64::MIN;

impl KernelLab {
    pub(super) async fn audit(&self, nodes: &[String], expect: &ExpectFile) -> Result<StepOutcome, LabError> {
        let reports = try_join_all(nodes.iter().map(|node| self.audited(node))).await?;
        let reports: BTreeMap<String, Report> = nodes.iter().cloned().zip(reports).collect();
        Ok(audited::judge(expect.findings.as_deref().unwrap_or_default(), &reports))
    }

    async fn audited(&self, node: &str) -> Result<Report, LabError> {
        let failed = |why: String| LabError::Step(format!("{node} cannot be audited: {why}"));
        let archive = self.collect(node).await.map_err(failed)?;
        let objects = self.store.read(objects).map_err(|error| failed(error.to_string()))?;
        let options = AuditOptions {
            mode: Some(self.proxies.mode_of(node).of_oracle()),
            tables: self.proxies.audited_tables(),
            settle_seconds: NEVER_TOO_NEW,
        };
        let work = tokio::task::spawn_blocking(move || {
            let file = File::open(archive).map_err(|error| error.to_string())?;
            let mut snapshot = Snapshot::read(BufReader::new(file)).map_err(|error| error.to_string())?;
            snapshot.objects.get_or_insert(objects);
            audit(&snapshot, &options).map_err(|error| error.to_string())
        });
        let mut report: Report = work.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        // Ignores the marker service: nodes without a running proxy do not follow its changes.
        if let Some(marker) = &self.marker {
            let is_only = |finding: &Finding| finding.services.iter().all(|service| marker.is(service));
            report.findings.retain(|finding| finding.services.is_empty() || !is_only(finding));
        }
        report.excuse(&self.proxies.excused_promises(node));
        Ok(report)
    }

    /// Returns the audit of `--audit` after a step; `None`: before the first step. Skips nodes that have no running
    /// proxy, have a fault, are cut off, or drain IPVS connections (their service addresses stay bound).
    pub(super) fn audit_after(&self, step: Option<&Step>) -> Option<Step> {
        let is_off = !self.audits || self.refused.is_some() || self.feed.withholds();
        if is_off || step.is_some_and(|step| !step.changes_rules()) {
            return None;
        }
        let unkept = &self.cut_off | &self.faults.nodes();
        let nodes = self.proxies.running(&(&unkept | self.proxies.draining()));
        let name = match step {
            Some(step) => format!("audit after {:?}", step.name),
            None => "audit before the first step".to_owned(),
        };
        let key = StepKey::of("audit").filter(|_| !nodes.is_empty())?;
        Some(Step {
            line: step.map_or(1, |step| step.line),
            name,
            promise: None,
            modes: Mode::WITH_OTHER.to_vec(),
            key,
            action: Action::Audit(OneOrMany(Vec::new())),
            nodes,
            documents: Vec::new(),
            expect: ExpectFile::default(),
            eventually: Some(SETTLES),
            every: Some(PAUSE),
        })
    }
}

fn objects(store: &Store) -> Result<Objects, serde_json::Error> {
    fn all<T: DeserializeOwned>(store: &Store, kind: ObjectKind) -> Result<Vec<T>, serde_json::Error> {
        store.records(kind).map(|record| serde_json::from_slice(&record.json)).collect()
    }
    Ok(Objects {
        services: all(store, ObjectKind::Service)?,
        slices: all(store, ObjectKind::EndpointSlice)?,
        nodes: all(store, ObjectKind::Node)?,
        service_cidrs: all(store, ObjectKind::ServiceCidr)?,
    })
}
