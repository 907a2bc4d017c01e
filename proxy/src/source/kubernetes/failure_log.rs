//! Logs failures of the API server: one line per class of failure while it lasts, and one when all watches work again.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::core::Status;
use tracing::{info, warn};

use super::super::object::ObjectKind;
use super::super::problem::one_line;
use super::access::AccessError;
use super::reflect::Failure;
use crate::metrics::ApiFailures;

/// Failures by how an operator fixes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureClass {
    Access,
    Hanging,
    /// The proxy's token or certificate is missing or rejected.
    Credentials,
    Forbidden(ObjectKind),
    Unserved(ObjectKind),
    Certificate,
    Refused,
    Unreachable,
    Server,
    Nonsense,
    TooLarge,
    /// The server rejects the resource version of its own list.
    Versions,
    Watches,
}

impl FailureClass {
    fn label(self) -> &'static str {
        match self {
            FailureClass::Access => "access",
            FailureClass::Hanging => "hanging",
            FailureClass::Credentials => "credentials",
            FailureClass::Forbidden(_) => "forbidden",
            FailureClass::Unserved(_) => "unserved",
            FailureClass::Certificate => "certificate",
            FailureClass::Refused => "refused",
            FailureClass::Unreachable => "unreachable",
            FailureClass::Server => "server",
            FailureClass::Nonsense => "nonsense",
            FailureClass::TooLarge => "too_large",
            FailureClass::Versions => "versions",
            FailureClass::Watches => "watches",
        }
    }
}

const WITHOUT_SERVICE_CIDRS: &str = "services work, but unused addresses of their ranges are not dropped; retrying";

#[derive(Debug)]
pub(super) struct ApiFailureLog {
    server: String,
    failures: ApiFailures,
    state: Mutex<FailureState>,
}

#[derive(Debug, Default)]
struct FailureState {
    failing: BTreeMap<ObjectKind, FailureClass>,
    reported: BTreeSet<FailureClass>,
    /// The optional kinds that the server lacks or forbids.
    lacking: BTreeMap<ObjectKind, FailureClass>,
    since: Option<Instant>,
}

impl ApiFailureLog {
    pub(super) fn new(server: String, failures: ApiFailures) -> ApiFailureLog {
        ApiFailureLog { server, failures, state: Mutex::default() }
    }

    pub(super) fn report(&self, kind: ObjectKind, failure: &Failure) {
        let (sort, sentence) = sort(kind, failure);
        self.failures.count(plural(kind), sort.label());
        if !kind.is_needed() && failure.is_absence() {
            self.answers(kind);
            if self.lacks(kind, sort) {
                warn!("Kubernetes API ({}): {sentence}; {}", self.server, WITHOUT_SERVICE_CIDRS);
            }
            return;
        }
        if self.fails(kind, sort) {
            warn!("Kubernetes API ({}): {sentence}; continuing with the last known state, and retrying", self.server);
        }
    }

    pub(super) fn recovered(&self, kind: ObjectKind) {
        self.answers(kind);
        if self.lock().lacking.remove(&kind).is_some() {
            info!("Kubernetes API ({}): {} are watched now", self.server, plural(kind));
        }
    }

    fn answers(&self, kind: ObjectKind) {
        if let Some(since) = self.works(kind) {
            info!(after = ?since.elapsed(), "Kubernetes API ({}): answers again", self.server);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FailureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a missing optional kind; returns whether to log it.
    fn lacks(&self, kind: ObjectKind, sort: FailureClass) -> bool {
        self.lock().lacking.insert(kind, sort) != Some(sort)
    }

    /// Notes a failure; returns whether to log it.
    fn fails(&self, kind: ObjectKind, sort: FailureClass) -> bool {
        let mut state = self.lock();
        state.since.get_or_insert_with(Instant::now);
        state.failing.insert(kind, sort);
        state.reported.insert(sort)
    }

    /// Notes that a watch works; returns the start of the outage if this ends it.
    fn works(&self, kind: ObjectKind) -> Option<Instant> {
        let mut state = self.lock();
        state.failing.remove(&kind)?;
        if !state.failing.is_empty() {
            return None;
        }
        state.reported.clear();
        state.since.take()
    }
}

/// Returns a failure's class, and the beginning of its log line.
pub(super) fn sort(kind: ObjectKind, failure: &Failure) -> (FailureClass, String) {
    let said = || one_line(&failure.to_string());
    match failure {
        Failure::Api(error) => connection(error),
        Failure::Refused { status, .. } => refused(kind, status),
        Failure::Access(AccessError::Late { .. }) => (FailureClass::Hanging, failure.to_string()),
        Failure::Access(_) => (FailureClass::Access, failure.to_string()),
        Failure::Nonsense(_) => (FailureClass::Nonsense, said()),
        Failure::TooLarge(_) | Failure::Adapted => (FailureClass::TooLarge, said()),
        Failure::Expired(_) => (FailureClass::Versions, said()),
        Failure::ShortWatches => (FailureClass::Watches, said()),
        Failure::Late(_) | Failure::Closed | Failure::Broken(_) => (FailureClass::Unreachable, said()),
    }
}

fn refused(kind: ObjectKind, status: &Status) -> (FailureClass, String) {
    let said = one_line(&status.message);
    let kinds = plural(kind);
    match status.code {
        401 => (
            FailureClass::Credentials,
            "does not accept the proxy's credentials (401): renew its token or certificate".to_owned(),
        ),
        403 => (FailureClass::Forbidden(kind), format!("does not let the proxy list and watch {kinds} (403): {said}")),
        404 if !kind.is_needed() => {
            (FailureClass::Unserved(kind), format!("does not serve {kinds} (404), as Kubernetes does from 1.33 on"))
        }
        404 => (
            FailureClass::Unserved(kind),
            format!("does not serve {kinds} (404): is it an API server of Kubernetes 1.21 or newer?"),
        ),
        // Go's servers answer this to HTTP on a TLS port.
        400 if said.contains("HTTP request to an HTTPS server") => {
            (FailureClass::Server, format!("speaks TLS, and its address begins with http:// (400): {said}"))
        }
        code => (FailureClass::Server, format!("answers with an error ({code}): {said}")),
    }
}

fn connection(error: &kube::Error) -> (FailureClass, String) {
    let innermost = one_line(&innermost(error).to_string());
    match error {
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => (FailureClass::Nonsense, innermost),
        _ if innermost.contains("certificate") => {
            (FailureClass::Certificate, format!("its certificate is not trusted: {innermost}"))
        }
        _ if is_refused(error) => (FailureClass::Refused, "nothing listens there (connection refused)".to_owned()),
        _ => (FailureClass::Unreachable, format!("cannot be reached: {innermost}")),
    }
}

pub(super) fn plural(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node => "Nodes",
        ObjectKind::Service => "Services",
        ObjectKind::EndpointSlice => "EndpointSlices",
        ObjectKind::ServiceCidr => "ServiceCIDRs",
    }
}

fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let outermost: &(dyn Error + 'static) = error;
    std::iter::successors(Some(outermost), |&error| error.source())
}

fn innermost(error: &kube::Error) -> &(dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

fn is_refused(error: &kube::Error) -> bool {
    let io = |cause: &(dyn Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    causes(error).any(|cause| io(cause) == Some(io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_failure_is_logged_once_until_all_watches_work() {
        let failure_log = ApiFailureLog::new("x".to_owned(), ApiFailures::default());
        assert!(failure_log.fails(ObjectKind::Service, FailureClass::Refused));
        assert!(
            !failure_log.fails(ObjectKind::EndpointSlice, FailureClass::Refused),
            "the other watches fail in the same way"
        );
        assert!(!failure_log.fails(ObjectKind::Service, FailureClass::Refused));
        assert!(failure_log.fails(ObjectKind::Service, FailureClass::Certificate));
        assert!(failure_log.works(ObjectKind::Service).is_none(), "EndpointSlices still fail");
        assert!(failure_log.works(ObjectKind::EndpointSlice).is_some());
        assert!(failure_log.works(ObjectKind::EndpointSlice).is_none(), "reported already");
        assert!(failure_log.fails(ObjectKind::Service, FailureClass::Refused));
    }

    #[test]
    fn http_errors_are_classified() {
        let api = |code: u16, message: &str| {
            let mut status = kube::core::Status::failure(message, "x");
            status.code = code;
            sort(ObjectKind::Service, &Failure::Refused { status: status.boxed(), after: None })
        };
        assert_eq!(api(401, "Unauthorized").0, FailureClass::Credentials);
        let (sort_403, text) = api(403, "user \"x\" cannot\nlist");
        assert_eq!(sort_403, FailureClass::Forbidden(ObjectKind::Service));
        assert_eq!(text, "does not let the proxy list and watch Services (403): user \"x\" cannot\\nlist");
        assert_eq!(api(404, "").0, FailureClass::Unserved(ObjectKind::Service));
        assert_eq!(api(503, "etcd").1, "answers with an error (503): etcd");
        assert_eq!(sort(ObjectKind::Node, &Failure::Nonsense("<html>".into())).0, FailureClass::Nonsense);
    }
}
