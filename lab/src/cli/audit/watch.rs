//! Audits this node again and again: `--watch`, with or without `--listen`.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions, NodeMark, NodeWatch};

use super::confirmation::{self, Confirmation, FindingId};
use super::events::EventWriter;
use super::heap;
use super::http::AuditServer;
use super::status::SharedStatus;
use crate::exit::Exit;

/// An unchanged node is audited again after this time: a mark has no sockets, and reads no ConfigMap.
const AGAIN: Duration = Duration::from_secs(600);
/// The shortest time for which `/healthz` accepts an old audit.
const STALE: Duration = Duration::from_secs(120);
/// The time for the first list of objects before the auditor complains.
const FIRST: Duration = Duration::from_secs(5);
/// The API server's own Service, by which pods reach it.
const API_SERVICE: &str = "default/kubernetes";
/// The most lines per audit about findings that are new or gone.
const LINES: usize = 20;

pub(super) struct WatchOptions {
    pub(super) collect: CollectOptions,
    pub(super) audit: AuditOptions,
    pub(super) period: Duration,
    pub(super) events: bool,
}

impl WatchOptions {
    fn settle(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.audit.settle_seconds).unwrap_or(0))
    }

    /// The time between readings. A finding is reported the settling time after its first reading: readings are that
    /// much closer, so that it is reported within the period if possible.
    fn interval(&self) -> Duration {
        self.period.saturating_sub(self.settle()).max(self.period / 2)
    }
}

/// Ends with an error only. `print` gets every new report, `None`: the reports are served, and lines tell what changed.
pub(super) async fn watch(
    options: WatchOptions,
    listener: Option<TcpListener>,
    mut print: impl FnMut(&Report) -> Result<(), Exit>,
) -> Result<u8, Exit> {
    let watch = Arc::new(NodeWatch::start(options.collect.clone()));
    let status = SharedStatus::default();
    let served = listener.is_some();
    if let Some(listener) = listener {
        let stale = STALE.max(options.period * 3);
        let server = AuditServer { status: status.clone(), stale };
        tokio::spawn(server.serve(listener));
    }
    let events = options.events.then(|| EventWriter::start(Arc::clone(&watch), status.clone()));
    wait_for_objects(&watch).await;
    let mut auditor = Auditor {
        confirmation: Confirmation::new(options.settle()),
        watch,
        status,
        events,
        last: None,
        complaint: None,
        announced: BTreeSet::new(),
        options,
    };
    loop {
        let start = Instant::now();
        match auditor.look(start).await {
            Ok(Some(report)) if served => auditor.tell(&report),
            Ok(Some(report)) if auditor.confirmation.pending() == 0 => print(&report)?,
            Ok(_) => {}
            Err(why) => auditor.fail(why),
        }
        tokio::time::sleep_until(auditor.next(start).into()).await;
    }
}

/// Most APIs answer at once: the first reading then needs no complaint.
async fn wait_for_objects(watch: &NodeWatch) {
    let end = Instant::now() + FIRST;
    while watch.ready().is_err() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Auditor {
    options: WatchOptions,
    watch: Arc<NodeWatch>,
    status: SharedStatus,
    confirmation: Confirmation,
    events: Option<EventWriter>,
    /// The node at the last audit, unless that left something open, and when it was.
    last: Option<(NodeMark, Instant)>,
    complaint: Option<String>,
    /// The findings of the last lines.
    announced: BTreeSet<FindingId>,
}

impl Auditor {
    /// Reads the node, and audits it if it has changed. Returns a report of the confirmed findings; `None` if the last one
    /// still holds.
    async fn look(&mut self, start: Instant) -> Result<Option<Report>, String> {
        self.watch.ready().map_err(|unread| format!("{}: {}", unread.what, unread.why))?;
        let mark = self.watch.mark().await;
        if self.last.is_some_and(|(last, at)| last == mark && start.duration_since(at) < AGAIN) {
            self.status.lock().unchanged(start);
            return Ok(None);
        }
        let mut snapshot = self.watch.collect().await;
        let (mut report, read) = self.audit(snapshot).await?;
        snapshot = read;
        let changed = self.watch.changes_within(self.options.settle() + start.elapsed());
        let due = self.confirmation.found(start, &confirmation::ids(&report), &changed);
        if !due.is_empty() {
            // The watch may be behind. A list per finding is seldom; one per period and node is not.
            match self.watch.list_again(&mut snapshot).await {
                Ok(()) => {
                    let (verified, read) = self.audit(snapshot).await?;
                    snapshot = read;
                    let found = confirmation::ids(&verified);
                    self.confirmation.report(due.into_iter().filter(|finding| found.contains(finding)).collect());
                }
                // The node cannot ask the API because of what it found.
                Err(_) if due.iter().any(|(_, service)| service.starts_with(API_SERVICE)) => {
                    self.confirmation.report(due)
                }
                Err(unread) => self.complain(format!("a finding is not verified: {}: {}", unread.what, unread.why)),
            }
        }
        let pending = self.confirmation.pending();
        report.findings.retain(|finding| finding.known.is_some() || self.confirmation.is_reported(finding));
        if let Some(events) = &mut self.events {
            let services = snapshot.objects.as_ref().map(|objects| objects.services.as_slice());
            events.announce(&report, services.unwrap_or_default(), &self.confirmation);
        }
        if pending == 0 {
            self.complaint = None;
        }
        self.last = (pending == 0 && report.unsettled == 0).then_some((mark, start));
        let mut status = self.status.lock();
        status.publish(report.clone(), start.elapsed(), start);
        status.pending = pending;
        drop((status, snapshot));
        heap::trim();
        Ok(Some(report))
    }

    async fn audit(&self, snapshot: Snapshot) -> Result<(Report, Snapshot), String> {
        let options = self.options.audit.clone();
        let work =
            move || audit(&snapshot, &options).map(|report| (report, snapshot)).map_err(|error| error.to_string());
        match tokio::task::spawn_blocking(work).await {
            Ok(audited) => audited,
            Err(_) => Err("the audit ended by an internal error, which standard error describes".to_owned()),
        }
    }

    fn next(&self, start: Instant) -> Instant {
        let regular = start + self.options.interval();
        self.confirmation.next_due(Instant::now()).map_or(regular, |due| regular.min(due))
    }

    fn fail(&mut self, why: String) {
        self.last = None;
        self.status.lock().fail(why.clone());
        self.complain(format!("not judged: {why}"));
    }

    /// Prints a sentence once, not in every period.
    fn complain(&mut self, why: String) {
        if self.complaint.as_ref() != Some(&why) {
            eprintln!("svclab: {why}");
            self.complaint = Some(why);
        }
    }

    fn tell(&mut self, report: &Report) {
        let now = self.confirmation.reported().clone();
        let new = report.wrong().filter(|one| confirmation::ids_of(one).all(|id| !self.announced.contains(&id)));
        let new = new.map(|one| match one.service_count {
            0 | 1 => format!("found: {} {}: {}", one.kind, one.service, one.cause),
            many => format!("found: {} of {many} service ports, {} for example: {}", one.kind, one.service, one.cause),
        });
        let gone = self.announced.difference(&now).map(|(kind, service)| format!("gone: {kind} {service}"));
        let lines: Vec<String> = new.chain(gone).collect();
        for line in lines.iter().take(LINES) {
            println!("{}", line.replace(char::is_control, " "));
        }
        if lines.len() > LINES {
            println!("and {} more", lines.len() - LINES);
        }
        self.announced = now;
    }
}
