//! Asks the API once: for `svcproxy check` the smallest requests, for `svcproxy render` whole lists.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use hyper::Method;
use hyper::header::{DATE, HeaderMap};
use kube::api::WatchParams;
use tokio::sync::mpsc;

use super::super::object::ObjectKind;
use super::super::{Batch, Change, SkippedObjects};
use super::answer::ask;
use super::connector::{ApiConnection, Connector};
use super::failure_log::{plural, sort};
use super::reflect::{Failure, Reflector};
use super::seen::SeenObjects;
use super::watching::expired;
use super::{ReflectorTiming, WAITING, WatchScope, WatchUpdate, events};
use crate::events::Recorder;

/// The watch of a probe ends with its first answer; this bounds it where a server does not notice that.
const WATCH_SECONDS: u32 = 1;

/// How the API server answers the proxy's own requests, each at its smallest.
#[derive(Debug, Default)]
pub struct ApiProbe {
    /// The kinds that can be listed and watched.
    pub usable: Vec<&'static str>,
    /// Why a kind cannot be used that the proxy needs, or why none can.
    pub problems: Vec<ApiProblem>,
    /// What works less well than it could.
    pub warnings: Vec<String>,
    /// Whether `batch` has this node's Node, if there is one.
    pub has_nodes: bool,
    pub batch: Batch,
    /// This machine's clock minus the server's, in seconds.
    pub clock_ahead: Option<f64>,
}

#[derive(Debug)]
pub struct ApiProblem {
    pub message: String,
    /// Whether the server cannot be asked, rather than refuses.
    pub is_unreachable: bool,
}

/// Lists one object of each kind, opens a watch of each, and creates an Event that the server does not store (`dryRun=All`).
pub async fn probe_api(connector: &Connector, scope: &WatchScope) -> ApiProbe {
    let mut probe = ApiProbe::default();
    let mut told = BTreeSet::new();
    for kind in scope.kinds() {
        let reflector = Reflector::new(kind, &scope.node_name, connector.clone(), ReflectorTiming::default());
        let answered = match connector.connect().await {
            Ok(connection) => reflector.probe(&connection, &mut probe).await,
            Err(error) => Err(error.into()),
        };
        let Err(failure) = answered else {
            probe.usable.push(plural(kind));
            continue;
        };
        let (class, sentence) = sort(kind, &failure);
        if !kind.is_needed() && failure.is_absence() {
            probe.warnings.push(sentence);
        } else if told.insert(class) {
            let is_unreachable = !matches!(failure, Failure::Refused { .. });
            probe.problems.push(ApiProblem { message: sentence, is_unreachable });
        }
        if !failure.is_absence() {
            // The other kinds would wait for the same failure.
            return probe;
        }
    }
    let created = match connector.connect().await {
        Ok(connection) => events::try_one(&connection, &scope.node_name).await,
        Err(error) => Err(error.to_string()),
    };
    probe.warnings.extend(created.err().map(|cause| format!("Events cannot be created: {cause}")));
    probe
}

/// Returns the complete state; the failure is the sentence of a log line. Invalid objects are left out, with a warning each.
pub async fn read_api(connector: &Connector, scope: &WatchScope) -> Result<Batch, String> {
    let (mut whole, skipped) = (Batch::default(), SkippedObjects::default());
    for kind in scope.kinds() {
        let mut reflector = Reflector::new(kind, &scope.node_name, connector.clone(), ReflectorTiming::default());
        let listed = loop {
            let mut seen = SeenObjects::new(kind, skipped.clone(), Recorder::default());
            match reflector.list_once(&mut seen).await {
                Err(Failure::Adapted) => {}
                listed => break listed,
            }
        };
        match listed {
            Ok((changes, version)) => {
                whole.changes.extend(changes);
                *kind.version_of(&mut whole.resource_versions) = Some(version);
            }
            Err(failure) if !kind.is_needed() && failure.is_absence() => {}
            Err(failure) => return Err(sort(kind, &failure).1),
        }
    }
    Ok(whole)
}

impl Reflector {
    async fn list_once(&mut self, seen: &mut SeenObjects) -> Result<(Vec<Change>, String), Failure> {
        let connection = self.connect().await?;
        let (version, changes) = gather(async |updates| self.list(&connection, seen, updates).await).await;
        Ok((changes, version?))
    }

    /// A list of one object shows that lists are allowed, and gives the version for a watch.
    async fn probe(&self, connection: &ApiConnection, probe: &mut ApiProbe) -> Result<(), Failure> {
        let mut seen = SeenObjects::new(self.kind, SkippedObjects::default(), Recorder::default());
        let (version, changes) = gather(async |updates| self.list_one(connection, &mut seen, updates).await).await;
        let version = version?;
        if self.kind == ObjectKind::Node {
            probe.has_nodes = true;
            probe.batch.changes.extend(changes);
        }
        let mut parameters = WatchParams::default().timeout(WATCH_SECONDS);
        (parameters.label_selector, parameters.field_selector) = (self.labels.clone(), self.fields.clone());
        let request = self.path.watch(&parameters, &version).map_err(kube::Error::BuildRequest)?;
        connection.admit(&Method::GET).await;
        let before = SystemTime::now();
        let response = ask(connection, request, self.patience).await.map_err(expired)?;
        let ahead = clock_ahead(response.headers(), before, before.elapsed().unwrap_or_default());
        probe.clock_ahead = probe.clock_ahead.or(ahead);
        Ok(())
    }
}

/// Returns the result of a list and its changes.
async fn gather<T>(list: impl AsyncFnOnce(&mpsc::Sender<WatchUpdate>) -> T) -> (T, Vec<Change>) {
    let (sender, mut received) = mpsc::channel(WAITING);
    let listing = async move { list(&sender).await };
    let gathering = async {
        let mut changes = Vec::new();
        while let Some(update) = received.recv().await {
            changes.extend(update.changes);
        }
        changes
    };
    tokio::join!(listing, gathering)
}

/// A `Date` (RFC 9110, section 6.6.1) has whole seconds, and is that of a moment while the client waited.
fn clock_ahead(headers: &HeaderMap, before: SystemTime, waited: Duration) -> Option<f64> {
    let date = jiff::fmt::rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok()?.timestamp();
    let here = jiff::Timestamp::try_from(before + waited / 2).ok()?;
    (here - jiff::SignedDuration::from_millis(500) - date).total(jiff::Unit::Second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_at_the_middle_of_the_wait() {
        let here = jiff::Timestamp::from_second(784_111_777).unwrap();
        let before = SystemTime::from(here);
        let ahead = |date: &str, waited| {
            let headers = HeaderMap::from_iter([(DATE, date.parse().unwrap())]);
            clock_ahead(&headers, before, Duration::from_secs(waited))
        };
        assert_eq!(ahead("Sun, 06 Nov 1994 08:49:37 GMT", 1), Some(0.0));
        assert_eq!(ahead("Sun, 06 Nov 1994 08:50:37 GMT", 1), Some(-60.0));
        assert_eq!(ahead("Sun, 06 Nov 1994 08:49:27 GMT", 21), Some(20.0));
        assert_eq!(ahead("yesterday", 1), None);
    }
}
