//! One kind of object: list it, watch it, and start again wherever that breaks off.

use std::sync::Arc;
use std::time::Duration;

use kube::core::{Request, Status};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::debug;

use super::super::Change;
use super::super::object::Kind;
use super::access::AccessError;
use super::backoff::Backoff;
use super::connector::Connector;
use super::kept::Kept;
use super::trouble::Trouble;
use super::watching::Watched;
use super::{Timing, WatchUpdate};
use crate::model::{LABEL_HEADLESS, LABEL_PROXY_NAME};

/// So many watches in a row that end at once and bring nothing are a failure, and everything is listed anew.
const SHORT_WATCHES: u32 = 3;
/// So many versions in a row that the server does not know are a failure: after the first one, a list gave a new one.
const EXPIRED_VERSIONS: u32 = 2;

/// Why an attempt ended other than by the server's ending a watch.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server cannot be asked.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The server cannot be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The server refused.
    #[error("{}", status.message)]
    Refused {
        /// Its words; the code is that of HTTP.
        status: Box<Status>,
        /// How long it asks to be left alone.
        after: Option<Duration>,
    },
    /// An answer that breaks off.
    #[error("an answer broke off: {0}")]
    Broken(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// An answer that is not one of the Kubernetes API's.
    #[error("the answer is not the API's: {0}")]
    Nonsense(String),
    /// More than is taken in.
    #[error("{0}, which is more than is taken in")]
    TooLarge(String),
    /// A page was too large; the next ones are asked to be smaller.
    #[error("a page was too large")]
    Smaller,
    /// The version to go on from is too old for the server, or not one that it knows: list again.
    #[error("it does not know the version of its own list any more when it is asked to watch: {0}")]
    Expired(String),
    /// Watches end as soon as they are opened.
    #[error("its watches end at once; does something in between break off answers that go on for minutes?")]
    ShortWatches,
    /// Nothing is listening any more.
    #[error("the source is gone")]
    Closed,
}

impl Failure {
    /// The server does not serve the kind, or does not allow to ask for it.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Failure::Refused { status, .. } if matches!(status.code, 403 | 404))
    }

    /// It is this kind that the server has no list of, as far as one answer tells; otherwise all kinds meet the same.
    fn is_of_kind(&self) -> bool {
        match self {
            Failure::Refused { status, .. } => status.code != 401,
            Failure::Nonsense(_) | Failure::TooLarge(_) | Failure::Late(_) | Failure::Broken(_) => true,
            _ => false,
        }
    }
}

/// Lists and watches one kind.
pub(super) struct Reflector {
    pub(super) kind: Kind,
    connector: Connector,
    pub(super) timing: Timing,
    pub(super) path: Request,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    /// A page must have come after so long.
    pub(super) patience: Duration,
    /// Objects to be asked for at a time.
    pub(super) page: u32,
    /// Where the next watch goes on; nothing before the first list and after an [`Failure::Expired`].
    pub(super) version: Option<String>,
    /// Watches in a row that ended at once.
    short: u32,
    /// Versions in a row that were not known.
    expired: u32,
}

impl Reflector {
    pub(super) fn new(kind: Kind, node_name: &str, connector: Connector, timing: Timing) -> Reflector {
        // As upstream: Services of other proxies and headless ones are left out by the server already.
        let labels = format!("!{LABEL_HEADLESS},!{LABEL_PROXY_NAME}");
        let (path, labels, fields) = match kind {
            Kind::Service => ("/api/v1/services", Some(labels), None),
            Kind::EndpointSlice => ("/apis/discovery.k8s.io/v1/endpointslices", Some(labels), None),
            Kind::ServiceCidr => ("/apis/networking.k8s.io/v1/servicecidrs", None, None),
            Kind::Node => ("/api/v1/nodes", None, Some(format!("metadata.name={node_name}"))),
        };
        let (path, page) = (Request::new(path), timing.page);
        let patience = timing.first_list.min(timing.list);
        let (version, short, expired) = (None, 0, 0);
        Reflector { kind, connector, timing, path, labels, fields, patience, page, version, short, expired }
    }

    /// Runs until nothing is listening any more.
    pub(super) async fn run(mut self, mut kept: Kept, trouble: Arc<Trouble>, updates: mpsc::Sender<WatchUpdate>) {
        let mut backoff = Backoff::new(self.timing.first_retry, self.timing.longest_retry);
        let mut absence = Backoff::new(self.timing.first_retry, self.timing.longest_absence);
        let mut told_absent = false;
        loop {
            let mut wait = Duration::ZERO;
            match self.list_and_watch(&mut kept, &trouble, &updates, &mut backoff).await {
                Ok(()) => debug!(kind = self.kind.name(), "watch ended; going on"),
                Err(Failure::Closed) => return,
                Err(Failure::Smaller) => continue,
                Err(Failure::Expired(said)) if self.expired < EXPIRED_VERSIONS => {
                    debug!(kind = self.kind.name(), said, "the version has expired; listing again");
                }
                Err(failure) => {
                    if let Failure::Refused { after: Some(after), .. } = failure {
                        wait = after;
                    }
                    trouble.report(self.kind, &failure);
                    if !self.kind.is_needed() && failure.is_absence() {
                        wait = wait.max(absence.wait());
                    }
                    // Nothing waits for such a kind. A server that nobody reaches has no list of the others either.
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

    /// Lists if need be, then watches until the watch ends.
    async fn list_and_watch(
        &mut self,
        kept: &mut Kept,
        trouble: &Trouble,
        updates: &mpsc::Sender<WatchUpdate>,
        backoff: &mut Backoff,
    ) -> Result<(), Failure> {
        let connection = self.connector.connect().await?;
        let outcome = async {
            if self.version.is_none() {
                let version = self.list(&connection.client, kept, updates).await?;
                self.version = Some(version.clone());
                let message = WatchUpdate {
                    kind: self.kind,
                    changes: kept.list_is_whole(),
                    version: Some(version),
                    listed: true,
                };
                updates.send(message).await.map_err(|_| Failure::Closed)?;
            }
            let mut went = Watched::default();
            let outcome = self.watch(&connection.client, kept, (trouble, backoff, &mut went), updates).await;
            self.judge(&went, outcome)
        }
        .await;
        match &outcome {
            // A list of this connection is what the next attempt begins with.
            Ok(()) | Err(Failure::Closed | Failure::Smaller | Failure::Expired(_) | Failure::ShortWatches) => {}
            // A client made anew takes in what was put right meanwhile: kubeconfig, certificates, tokens.
            Err(_) => self.connector.give_up(&connection),
        }
        outcome
    }

    /// What a watch's end means after those before it.
    fn judge(&mut self, went: &Watched, outcome: Result<(), Failure>) -> Result<(), Failure> {
        if went.stood || went.events {
            self.short = 0;
        }
        if went.stood {
            self.expired = 0;
        }
        match outcome {
            Ok(()) | Err(Failure::Broken(_)) if !went.stood && !went.events => {
                self.short += 1;
                if self.short < SHORT_WATCHES {
                    return Ok(());
                }
                self.short = 0;
                self.version = None;
                Err(Failure::ShortWatches)
            }
            Err(Failure::Broken(cause)) => {
                debug!(kind = self.kind.name(), cause, "watch broke off");
                Ok(())
            }
            Err(Failure::Expired(said)) => {
                self.expired += 1;
                self.version = None;
                Err(Failure::Expired(said))
            }
            // A watch that goes on where it stood would meet the same again.
            Err(failure @ (Failure::Nonsense(_) | Failure::TooLarge(_))) => {
                self.version = None;
                Err(failure)
            }
            outcome => outcome,
        }
    }
}

/// Tells changes, and how far a watch has come.
pub(super) async fn report(
    kind: Kind,
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
