use std::sync::Arc;
use std::time::Duration;

use kube::core::{Request, Status};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::debug;

use super::super::Change;
use super::super::object::ObjectKind;
use super::access::AccessError;
use super::backoff::{Backoff, chance};
use super::connector::{ApiConnection, Connector};
use super::failure_log::ApiFailureLog;
use super::seen::SeenObjects;
use super::watching::WatchProgress;
use super::{ReflectorTiming, WatchUpdate};
use crate::habits::{self, Habit};
use crate::model::{LABEL_HEADLESS, LABEL_PROXY_NAME};
use crate::mutants;

/// After this many consecutive watches that end at once, all objects are listed again.
const SHORT_WATCHES: u32 = 3;
/// This many consecutive versions that the server does not know are a failure.
const EXPIRED_VERSIONS: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{}", status.message)]
    Refused {
        /// The server's message; its code is the HTTP status.
        status: Box<Status>,
        /// The wait that the server asks for (`Retry-After`).
        after: Option<Duration>,
    },
    #[error("an answer broke off: {0}")]
    Broken(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the answer is not the API's: {0}")]
    Nonsense(String),
    #[error("{0}, which exceeds the limit")]
    TooLarge(String),
    /// The next list is asked for otherwise, at once.
    #[error("the server does not answer such a list")]
    Adapted,
    #[error("it does not know the version of its own list any more when it is asked to watch: {0}")]
    Expired(String),
    #[error("its watches end at once; does something in between break off answers that go on for minutes?")]
    ShortWatches,
    #[error("the source is gone")]
    Closed,
}

impl Failure {
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Failure::Refused { status, .. } if matches!(status.code, 403 | 404))
    }

    fn is_of_kind(&self) -> bool {
        match self {
            Failure::Refused { status, .. } => status.code != 401,
            Failure::Nonsense(_) | Failure::TooLarge(_) | Failure::Late(_) | Failure::Broken(_) => true,
            _ => false,
        }
    }
}

pub(super) struct Reflector {
    pub(super) kind: ObjectKind,
    connector: Connector,
    pub(super) timing: ReflectorTiming,
    pub(super) path: Request,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) patience: Duration,
    /// The limit of a page, if a server needs one.
    pub(super) page: Option<u32>,
    /// Where the next watch starts; `None` before the first list and after [`Failure::Expired`].
    pub(super) version: Option<String>,
    /// The version that a list must reach; `0`: any, as in client-go's first lists; `None`: the newest.
    pub(super) least_version: Option<String>,
    /// Consecutive watches that ended at once.
    short: u32,
    expired: u32,
    has_listed: bool,
}

impl Reflector {
    pub(super) fn new(kind: ObjectKind, node_name: &str, connector: Connector, timing: ReflectorTiming) -> Reflector {
        // As in kube-proxy, the server filters out headless Services and those of other proxies.
        let without = |labels: &[&'static str]| {
            let left_out = labels.iter().filter(|label| mutants::ignored_label() != Some(label));
            left_out.map(|label| format!("!{label}")).collect::<Vec<_>>().join(",")
        };
        let (path, labels, fields) = match kind {
            ObjectKind::Service => {
                ("/api/v1/services", Some(without(&[LABEL_PROXY_NAME])), Some("spec.clusterIP!=None".to_owned()))
            }
            ObjectKind::EndpointSlice => {
                let labels = without(&[LABEL_HEADLESS, LABEL_PROXY_NAME]);
                ("/apis/discovery.k8s.io/v1/endpointslices", Some(labels), None)
            }
            ObjectKind::ServiceCidr => ("/apis/networking.k8s.io/v1/servicecidrs", None, None),
            ObjectKind::Node => ("/api/v1/nodes", None, Some(format!("metadata.name={node_name}"))),
        };
        let (path, page) = (Request::new(path), timing.page);
        let patience = timing.first_list.min(timing.list);
        let (version, least_version) = (None, Some("0".to_owned()));
        let (short, expired, has_listed) = (0, 0, false);
        Reflector {
            kind,
            connector,
            timing,
            path,
            labels,
            fields,
            patience,
            page,
            version,
            least_version,
            short,
            expired,
            has_listed,
        }
    }

    pub(super) async fn connect(&self) -> Result<ApiConnection, AccessError> {
        self.connector.connect().await
    }

    pub(super) async fn run(
        mut self,
        mut seen: SeenObjects,
        failure_log: Arc<ApiFailureLog>,
        updates: mpsc::Sender<WatchUpdate>,
    ) {
        let mut backoff = Backoff::new(self.timing.first_retry, self.timing.longest_retry);
        let mut absence = Backoff::new(self.timing.first_retry, self.timing.longest_absence);
        let mut told_absent = false;
        loop {
            let mut wait = Duration::ZERO;
            match self.list_and_watch(&mut seen, &failure_log, &updates, &mut backoff).await {
                Ok(progress) => {
                    debug!(kind = self.kind.name(), "watch ended; going on");
                    if progress.in_time {
                        continue;
                    }
                }
                Err(Failure::Closed) => return,
                Err(Failure::Adapted) => continue,
                Err(Failure::Expired(said)) if self.expired < EXPIRED_VERSIONS => {
                    debug!(kind = self.kind.name(), said, "the version has expired; listing again");
                }
                Err(failure) => {
                    if let Failure::Refused { after: Some(after), .. } = failure {
                        wait = after;
                    }
                    failure_log.report(self.kind, &failure);
                    if !self.kind.is_needed() && failure.is_absence() {
                        wait = wait.max(absence.wait());
                    }
                    // The first state waits for no optional kind, unless the failure concerns all kinds.
                    if !self.kind.is_needed() && failure.is_of_kind() && !told_absent {
                        told_absent = true;
                        let nothing = WatchUpdate { kind: self.kind, changes: Vec::new(), version: None, listed: true };
                        if updates.send(nothing).await.is_err() {
                            return;
                        }
                    }
                }
            }
            if self.version.is_some() {
                absence.reset();
            }
            sleep(backoff.wait().max(wait)).await;
        }
    }

    async fn list_and_watch(
        &mut self,
        seen: &mut SeenObjects,
        failure_log: &ApiFailureLog,
        updates: &mpsc::Sender<WatchUpdate>,
        backoff: &mut Backoff,
    ) -> Result<WatchProgress, Failure> {
        let connection = self.connect().await?;
        let outcome = async {
            if self.version.is_none() {
                if self.has_listed {
                    sleep(self.timing.relist.mul_f64(chance())).await;
                }
                let version = self.list(&connection, seen, updates).await?;
                self.version = Some(version.clone());
                let message =
                    WatchUpdate { kind: self.kind, changes: self.removed(seen), version: Some(version), listed: true };
                updates.send(message).await.map_err(|_| Failure::Closed)?;
            }
            let mut progress = WatchProgress::default();
            let outcome = self.watch(&connection, seen, (failure_log, backoff, &mut progress), updates).await;
            if let Err(Failure::Broken(_)) = outcome {
                connection.broke();
            }
            self.judge(&progress, outcome).map(|()| progress)
        }
        .await;
        match &outcome {
            // These outcomes show that the connection works.
            Ok(_) | Err(Failure::Closed | Failure::Adapted | Failure::Expired(_) | Failure::ShortWatches) => {}
            // The next client reads the credential files again: they may have been corrected.
            Err(_) => self.connector.give_up(&connection),
        }
        outcome
    }

    /// Removes the objects that the list lacked.
    fn removed(&mut self, seen: &mut SeenObjects) -> Vec<Change> {
        let was_empty = habits::has(Habit::EmptyListIsIgnored) && seen.list_was_empty();
        let is_kept = was_empty || habits::has(Habit::ListRemovesNothing) || self.skips_list();
        self.has_listed = true;
        if is_kept { Vec::new() } else { seen.list_is_whole() }
    }

    /// Whether a mutant takes only the version of a list.
    pub(super) fn skips_list(&self) -> bool {
        self.has_listed && (habits::has(Habit::GoesOnAfterGone) || habits::has(Habit::WatchesFromNow))
    }

    /// Lists anew. API servers answer lists of this version and newer ones from their caches.
    fn forget_version(&mut self) {
        self.least_version = self.version.take().or(self.least_version.take());
    }

    /// Judges how a watch ended. Only several short watches in a row are a failure.
    fn judge(&mut self, progress: &WatchProgress, outcome: Result<(), Failure>) -> Result<(), Failure> {
        if progress.stood || progress.events {
            self.short = 0;
        }
        if progress.stood {
            self.expired = 0;
        }
        match outcome {
            Ok(()) | Err(Failure::Broken(_)) if !progress.stood && !progress.events => {
                self.short += 1;
                if self.short < SHORT_WATCHES {
                    return Ok(());
                }
                self.short = 0;
                self.forget_version();
                Err(Failure::ShortWatches)
            }
            Err(Failure::Broken(cause)) => {
                if habits::has(Habit::WatchesFromNow) {
                    self.forget_version();
                }
                debug!(kind = self.kind.name(), cause, "watch broke off");
                Ok(())
            }
            Err(Failure::Expired(said)) => {
                self.expired += 1;
                self.forget_version();
                Err(Failure::Expired(said))
            }
            // A watch from the same version would fail again.
            Err(failure @ (Failure::Nonsense(_) | Failure::TooLarge(_))) => {
                self.forget_version();
                Err(failure)
            }
            outcome => outcome,
        }
    }
}

pub(super) async fn report(
    kind: ObjectKind,
    updates: &mpsc::Sender<WatchUpdate>,
    changes: Vec<Change>,
    version: Option<String>,
) -> Result<(), Failure> {
    if changes.is_empty() && version.is_none() {
        return Ok(());
    }
    let message = WatchUpdate { kind, changes, version, listed: false };
    updates.send(message).await.map_err(|_| Failure::Closed)
}
