//! A watch starts at the version of the list or of the previous watch.

use std::time::Duration;

use futures_util::FutureExt;
use hyper::Method;
use hyper::header::{ACCEPT_ENCODING, HeaderValue};
use kube::api::WatchParams;
use kube::core::Status;
use prost::bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::super::Change;
use super::super::object::ObjectKind;
use super::WatchUpdate;
use super::answer::{self, WatchFrames, ask};
use super::backoff::{Backoff, chance};
use super::connector::ApiConnection;
use super::decode::{Envelope, RawObject, decode};
use super::failure_log::ApiFailureLog;
use super::media_type::Encoding;
use super::protobuf;
use super::reflect::{Failure, Reflector, report};
use super::seen::SeenObjects;

/// In seconds; random, as in client-go's reflectors, so that nodes do not reconnect together.
const WATCH_SECONDS: (f64, f64) = (300.0, 600.0);

#[derive(Deserialize)]
struct JsonEvent<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

struct WatchedEvent<'a> {
    r#type: String,
    object: RawObject<'a>,
}

impl WatchedEvent<'_> {
    fn of(encoding: Encoding, frame: &Bytes) -> Result<WatchedEvent<'_>, Failure> {
        match encoding {
            Encoding::Json => {
                let event: JsonEvent<'_> =
                    serde_json::from_slice(frame).map_err(|error| Failure::Nonsense(error.to_string()))?;
                Ok(WatchedEvent { r#type: event.r#type, object: RawObject::Json(event.object) })
            }
            Encoding::Protobuf => {
                let (r#type, object) = protobuf::event(frame.clone())?;
                Ok(WatchedEvent { r#type, object: RawObject::Protobuf(object) })
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct WatchProgress {
    /// Whether the watch lasted long enough to show that the server works.
    pub(super) stood: bool,
    pub(super) events: bool,
    /// Whether the watch ended when it was to end.
    pub(super) in_time: bool,
}

impl Reflector {
    /// Updates `progress` even on failure.
    pub(super) async fn watch(
        &mut self,
        connection: &ApiConnection,
        seen: &mut SeenObjects,
        (failure_log, backoff, progress): (&ApiFailureLog, &mut Backoff, &mut WatchProgress),
        updates: &mpsc::Sender<WatchUpdate>,
    ) -> Result<(), Failure> {
        let Some(version) = self.version.clone() else { return Ok(()) };
        let seconds = watch_seconds();
        let mut parameters = WatchParams::default().timeout(seconds);
        (parameters.label_selector, parameters.field_selector) = (self.labels.clone(), self.fields.clone());
        let mut request = self.path.watch(&parameters, &version).map_err(kube::Error::BuildRequest)?;
        // API servers pack no events of such a watch, and what they could pack is small.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        connection.admit(&Method::GET).await;
        let mut frames = WatchFrames::new(ask(connection, request, self.timing.list).await.map_err(expired)?);
        // The server's clock may differ.
        let agreed = Instant::now() + Duration::from_secs(u64::from(seconds)).mul_f64(0.99);
        let settled = Instant::now() + self.timing.settled;
        let mut silent = Instant::now() + self.timing.silence;
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame?,
                () = sleep_until(settled), if !progress.stood => {
                    progress.stood = true;
                    backoff.reset();
                    failure_log.recovered(self.kind);
                    continue;
                }
                () = sleep_until(silent) => {
                    debug!(kind = self.kind.name(), "watch fell silent");
                    return Ok(());
                }
            };
            let Some(frame) = frame else {
                progress.in_time = Instant::now() >= agreed;
                return Ok(());
            };
            let event = WatchedEvent::of(frames.encoding(), &frame)?;
            let changes = apply(self.kind, &event, seen)?;
            if let Some(version) = Envelope::of(&event.object).version() {
                self.version = Some(version.to_owned());
            }
            progress.events = true;
            silent = Instant::now() + self.timing.silence;
            report(self.kind, updates, changes, self.version.clone()).await?;
        }
    }
}

fn apply(kind: ObjectKind, event: &WatchedEvent<'_>, seen: &mut SeenObjects) -> Result<Vec<Change>, Failure> {
    let change = match event.r#type.as_str() {
        "ADDED" | "MODIFIED" => match decode(kind, &event.object) {
            nameless if nameless.key.name.is_empty() => {
                return Err(Failure::Nonsense(format!("an event about a {} without a name", kind.name())));
            }
            decoded => seen.upsert(decoded),
        },
        "DELETED" => seen.delete(&known_kind(kind, &event.object)?),
        "BOOKMARK" => {
            known_kind(kind, &event.object)?;
            None
        }
        "ERROR" => {
            let status: Option<Status> = match &event.object {
                RawObject::Json(raw) => serde_json::from_str(raw.get()).ok(),
                RawObject::Protobuf(object) => object.status(),
            };
            let status = status.unwrap_or_default();
            return Err(expired(Failure::Refused { status: status.boxed(), after: None }));
        }
        other => {
            let other = super::super::problem::quote(other);
            return Err(Failure::Nonsense(format!("an event of type {other}")));
        }
    };
    Ok(change.into_iter().collect())
}

/// Fails if the object is of another kind.
fn known_kind(kind: ObjectKind, object: &RawObject<'_>) -> Result<Envelope, Failure> {
    let envelope = Envelope::of(object);
    if envelope.is_of(kind) {
        Ok(envelope)
    } else {
        Err(Failure::Nonsense(format!("an event about another kind than {}", kind.name())))
    }
}

/// Converts errors that require a new list to [`Failure::Expired`].
pub(super) fn expired(failure: Failure) -> Failure {
    match failure {
        Failure::Refused { status, .. } if is_expired(&status) => Failure::Expired(status.message),
        failure => failure,
    }
}

/// Whether the server does not have the version of the request.
pub(super) fn is_expired(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    // 400: the server cannot parse the version, as after a restored backup.
    matches!(status.code, 400 | 410) || causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
}

fn watch_seconds() -> u32 {
    let (least, most) = WATCH_SECONDS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 300 and 600")]
    let seconds = (least + (most - least) * chance()) as u32;
    seconds
}

pub(super) fn fuzz(kind: ObjectKind, encoding: Encoding, bytes: &[u8], seen: &mut SeenObjects) {
    let mut frames = WatchFrames::new(answer::fuzz(encoding, bytes));
    while let Some(Ok(Some(frame))) = frames.next().now_or_never() {
        if let Ok(event) = WatchedEvent::of(encoding, &frame) {
            let _ = apply(kind, &event, seen);
        }
    }
}
