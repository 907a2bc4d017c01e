//! Audits of nodes: each is collected as an operator would, and its rules are judged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use futures_util::future::try_join_all;
use k8s_openapi::serde::de::DeserializeOwned;
use svclab_apiserver::objects::{ObjectKind, Store};
use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_snapshot::{Objects, Snapshot};

use super::error::LabError;
use super::lab::Lab;
use crate::mode::Mode;
use crate::scenario::audited;
use crate::scenario::execute::Seen;
use crate::scenario::file::ExpectFile;
use crate::scenario::{Action, Step};

/// How long rules may take to be right after a step of `--audit`: what a proxy does after it has said that it has applied everything.
const SETTLES: Duration = Duration::from_secs(10);
/// Between two looks meanwhile: each runs the tools of the node.
const PAUSE: Duration = Duration::from_millis(500);
/// No object is too new to be judged: the lab waits until the proxies have applied it.
const NEVER_TOO_NEW: i64 = i64::MIN;

impl Lab {
    /// Audits nodes, and judges what is found.
    pub(super) async fn audit(&self, nodes: &[String], expect: &ExpectFile) -> Result<Seen, LabError> {
        let reports = try_join_all(nodes.iter().map(|node| self.audited(node))).await?;
        let reports: BTreeMap<String, Report> = nodes.iter().cloned().zip(reports).collect();
        Ok(audited::judge(expect.findings.as_deref().unwrap_or_default(), &reports))
    }

    async fn audited(&self, node: &str) -> Result<Report, LabError> {
        let failed = |why: String| LabError::Step(format!("{node} cannot be audited: {why}"));
        let archive = self.collect(node).await.map_err(failed)?;
        // Where there is no Kubernetes API, or none that answers, the objects are those that the lab has published.
        let objects = self.store.read(objects).map_err(|error| failed(error.to_string()))?;
        let options =
            AuditOptions { mode: Some(self.proxies.mode_of(node).of_oracle()), settle_seconds: NEVER_TOO_NEW };
        let work = tokio::task::spawn_blocking(move || {
            let file = File::open(archive).map_err(|error| error.to_string())?;
            let mut snapshot = Snapshot::read(BufReader::new(file)).map_err(|error| error.to_string())?;
            snapshot.objects.get_or_insert(objects);
            audit(&snapshot, &options).map_err(|error| error.to_string())
        });
        let mut report: Report = work.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        // The lab's own service changes with every step, and a node whose proxy has ended does not hear of it.
        if let Some(marker) = &self.marker {
            report.findings.retain(|finding| !marker.is(&finding.service));
        }
        report.excuse(&self.proxies.known(node));
        Ok(report)
    }

    /// The audit that `svclab run --audit` adds after a step, or before the first one. Left out are nodes whose rules nobody keeps: their
    /// proxy has ended, or something is kept from it; and those that drain what IPVS forwarded, where service addresses stay bound meanwhile.
    pub(super) fn audit_after(&self, step: Option<&Step>) -> Option<Step> {
        let is_off = !self.audits || self.refused.is_some() || self.feed.withholds();
        if is_off || step.is_some_and(|step| !changes_rules(&step.action)) {
            return None;
        }
        let unkept = &self.cut_off | &self.faults.nodes();
        let nodes = self.proxies.running(&(&unkept | self.proxies.draining()));
        let name = match step {
            Some(step) => format!("audit after {:?}", step.name),
            None => "audit before the first step".to_owned(),
        };
        (!nodes.is_empty()).then(|| Step {
            line: step.map_or(1, |step| step.line),
            name,
            promise: None,
            modes: Mode::ALL.to_vec(),
            action: Action::Audit(nodes),
            expect: ExpectFile::default(),
            eventually: Some(SETTLES),
            every: Some(PAUSE),
        })
    }
}

/// Whether proxies write other rules because of a step, or nodes that were left out come back.
fn changes_rules(action: &Action) -> bool {
    matches!(
        action,
        Action::Apply(_)
            | Action::Delete(_)
            | Action::Ready(..)
            | Action::Terminate(_)
            | Action::Scale(..)
            | Action::Proxy(..)
            | Action::Heal(_)
            | Action::Api(_)
            | Action::EndFault(..)
    )
}

/// What the lab has published.
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
