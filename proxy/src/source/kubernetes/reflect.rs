//! One kind of object: list it, watch it, and start again wherever that breaks off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::super::Change;
use super::super::object::Kind;
use super::access::{Access, AccessError};
use super::backoff::{Backoff, chance};
use super::decode::{Envelope, decode};
use super::kept::Kept;
use super::trouble::Trouble;
use super::{Timing, Told};
use crate::metrics::Requests;
use crate::state::service::{LABEL_HEADLESS, LABEL_PROXY_NAME};

/// How long the server shall keep a watch open, at least and at most: it is asked for some time in between, so that
/// the watches of many nodes do not end together (client-go's reflectors do the same).
const WATCH_SECONDS: (f64, f64) = (300.0, 600.0);

/// Objects of a list that are decoded and told at a time: decoded ones are several times as large as what is kept.
const PIECE: usize = 50;

/// Why an attempt ended other than by the server's ending a watch.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server cannot be asked.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The server refused, or did not answer.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// An answer that is not one of the Kubernetes API's.
    #[error("the answer is not the API's: {0}")]
    Nonsense(String),
    /// The version to go on from is too old for the server, or not one that it knows: list again.
    #[error("the version is not known to the server any more")]
    Expired,
    /// Nobody listens any more.
    #[error("the source is gone")]
    Closed,
}

/// Lists and watches one kind.
pub(super) struct Reflector {
    kind: Kind,
    access: Access,
    requests: Requests,
    timing: Timing,
    path: Request,
    labels: Option<String>,
    fields: Option<String>,
    client: Option<Client>,
    /// Where the next watch goes on; nothing before the first list and after an [`Failure::Expired`].
    version: Option<String>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Reflector {
    pub(super) fn new(kind: Kind, node_name: &str, access: Access, requests: Requests, timing: Timing) -> Reflector {
        // As upstream: Services of other proxies and headless ones are left out by the server already.
        let labels = format!("!{LABEL_HEADLESS},!{LABEL_PROXY_NAME}");
        let (path, labels, fields) = match kind {
            Kind::Service => ("/api/v1/services", Some(labels), None),
            Kind::EndpointSlice => ("/apis/discovery.k8s.io/v1/endpointslices", Some(labels), None),
            Kind::Node => ("/api/v1/nodes", None, Some(format!("metadata.name={node_name}"))),
        };
        let path = Request::new(path);
        Reflector { kind, access, requests, timing, path, labels, fields, client: None, version: None }
    }

    /// Runs until nobody listens any more.
    pub(super) async fn run(mut self, mut kept: Kept, trouble: Arc<Trouble>, told: mpsc::Sender<Told>) {
        let mut backoff = Backoff::new(self.timing.first_retry, self.timing.longest_retry);
        loop {
            match self.attempt(&mut kept, &trouble, &told, &mut backoff).await {
                Ok(()) => debug!(kind = self.kind.name(), "watch ended; going on"),
                Err(Failure::Closed) => return,
                Err(Failure::Expired) => {
                    debug!(kind = self.kind.name(), "the version has expired; listing again");
                    self.version = None;
                }
                Err(failure) => {
                    // A client read anew takes in what was put right meanwhile: kubeconfig, certificates, tokens.
                    self.client = None;
                    if matches!(failure, Failure::Nonsense(_)) {
                        // A watch that goes on where it stood would meet the same nonsense again.
                        self.version = None;
                    }
                    trouble.report(self.kind, &failure);
                }
            }
            sleep(backoff.wait()).await;
        }
    }

    /// Lists if need be, then watches until the watch ends.
    async fn attempt(
        &mut self,
        kept: &mut Kept,
        trouble: &Trouble,
        told: &mpsc::Sender<Told>,
        backoff: &mut Backoff,
    ) -> Result<(), Failure> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(self.access.connect(&self.requests).await?).clone(),
        };
        if self.version.is_none() {
            let version = self.list(&client, kept, told).await?;
            self.version = Some(version.clone());
            let message = Told { kind: self.kind, changes: kept.list_is_whole(), version: Some(version), listed: true };
            told.send(message).await.map_err(|_| Failure::Closed)?;
            trouble.recovered(self.kind);
        }
        let begun = Instant::now();
        let outcome = self.watch(&client, kept, trouble, told, backoff).await;
        if begun.elapsed() >= self.timing.settled {
            backoff.reset();
        }
        outcome
    }

    /// Tells the whole list, piece by piece, and returns its version.
    async fn list(&self, client: &Client, kept: &mut Kept, told: &mpsc::Sender<Told>) -> Result<String, Failure> {
        kept.list_begins();
        let mut page = ListParams::default().limit(self.timing.page);
        (page.label_selector, page.field_selector) = (self.labels.clone(), self.fields.clone());
        loop {
            let request = self.path.list(&page).map_err(kube::Error::BuildRequest)?;
            let text = timeout(self.timing.list, client.request_text(request)).await;
            let text = text.map_err(|_| Failure::Late(self.timing.list))?.map_err(expired)?;
            let list: List<'_> = serde_json::from_str(&text).map_err(|e| Failure::Nonsense(e.to_string()))?;
            for piece in list.items.unwrap_or_default().chunks(PIECE) {
                let changes = piece.iter().filter_map(|item| kept.here(decode(self.kind, item))).collect();
                self.tell(told, changes, None).await?;
            }
            match list.metadata.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => {
                    let version = list.metadata.resource_version.filter(|v| !v.is_empty());
                    return version.ok_or_else(|| Failure::Nonsense("a list without a version".to_owned()));
                }
            }
        }
    }

    async fn watch(
        &mut self,
        client: &Client,
        kept: &mut Kept,
        trouble: &Trouble,
        told: &mpsc::Sender<Told>,
        backoff: &mut Backoff,
    ) -> Result<(), Failure> {
        let version = self.version.clone().ok_or(Failure::Expired)?;
        let mut parameters = WatchParams::default().timeout(watch_seconds());
        (parameters.label_selector, parameters.field_selector) = (self.labels.clone(), self.fields.clone());
        let request = self.path.watch(&parameters, &version).map_err(kube::Error::BuildRequest)?;
        let opened = timeout(self.timing.list, client.request_stream(request)).await;
        let stream = opened.map_err(|_| Failure::Late(self.timing.list))?.map_err(expired)?;
        trouble.recovered(self.kind);
        let mut stream = std::pin::pin!(stream);
        let mut line = Vec::new();
        // A line that breaks off in the middle is no event: the next watch brings it again.
        while let Some(text) = self.line(&mut stream, &mut line).await {
            let event: Event<'_> = serde_json::from_slice(text).map_err(|e| Failure::Nonsense(e.to_string()))?;
            let changes = apply(self.kind, &event, kept)?;
            if let Some(version) = Envelope::of(event.object).version() {
                self.version = Some(version.to_owned());
            }
            backoff.reset();
            self.tell(told, changes, self.version.clone()).await?;
        }
        Ok(())
    }

    /// The next whole line; `None` when the watch has ended, was cut, or fell silent.
    async fn line<'l, R: AsyncBufRead + Unpin>(&self, stream: &mut R, line: &'l mut Vec<u8>) -> Option<&'l [u8]> {
        loop {
            line.clear();
            match timeout(self.timing.silence, stream.read_until(b'\n', line)).await {
                Ok(Ok(_)) if line.last() != Some(&b'\n') => return None,
                Ok(Ok(_)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(Ok(_)) => return Some(line),
                Ok(Err(error)) => {
                    debug!(kind = self.kind.name(), %error, "watch broke off");
                    return None;
                }
                Err(_) => {
                    debug!(kind = self.kind.name(), "watch fell silent");
                    return None;
                }
            }
        }
    }

    async fn tell(
        &self,
        told: &mpsc::Sender<Told>,
        changes: Vec<Change>,
        version: Option<String>,
    ) -> Result<(), Failure> {
        if changes.is_empty() && version.is_none() {
            return Ok(());
        }
        let message = Told { kind: self.kind, changes, version, listed: false };
        told.send(message).await.map_err(|_| Failure::Closed)
    }
}

/// What one event changes.
fn apply(kind: Kind, event: &Event<'_>, kept: &mut Kept) -> Result<Vec<Change>, Failure> {
    let change = match event.r#type {
        "ADDED" | "MODIFIED" => kept.here(decode(kind, event.object)),
        "DELETED" => kept.gone(Envelope::of(event.object).key()),
        "BOOKMARK" => None,
        "ERROR" => {
            let status: Status = serde_json::from_str(event.object.get()).unwrap_or_default();
            return Err(expired(kube::Error::Api(status.boxed())));
        }
        other => return Err(Failure::Nonsense(format!("an event of type {other:?}"))),
    };
    Ok(change.into_iter().collect())
}

/// Tells the errors that only a new list can heal from all others.
fn expired(error: kube::Error) -> Failure {
    let kube::Error::Api(status) = &error else { return Failure::Api(error) };
    let too_large = || {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    };
    // 400: a version that the server cannot even read, as after its data were restored from elsewhere.
    if matches!(status.code, 400 | 410) || too_large() { Failure::Expired } else { Failure::Api(error) }
}

fn watch_seconds() -> u32 {
    let (least, most) = WATCH_SECONDS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 300 and 600")]
    let seconds = (least + (most - least) * chance()) as u32;
    seconds
}
