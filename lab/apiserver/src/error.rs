//! Errors of requests, as `Status` objects.

use serde_json::{Value, json};

use super::change_log::Expired;
use super::encoding::{Encoding, media_types};
use super::resources::Resource;
use crate::objects::ObjectError;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Option<Value>,
    pub(super) retry_after: Option<u32>,
    pub(super) continue_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) reason: &'static str,
    pub(super) field: String,
    pub(super) message: String,
}

impl Cause {
    pub(super) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Cause { reason: "FieldValueInvalid", field: field.into(), message }
    }

    pub(super) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Cause { reason: "FieldValueRequired", field: field.into(), message }
    }

    pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Cause { reason: "FieldValueDuplicate", field: field.into(), message: format!("Duplicate value: {value}") }
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {value:?}: supported values: {supported}");
        Cause { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Cause { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {detail}") }
    }
}

impl ApiError {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError { code, reason, message: message.into(), details: None, retry_after: None, continue_token: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(400, "BadRequest", message)
    }

    pub(super) fn unauthorized() -> Self {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn unknown_path() -> Self {
        let error = ApiError::new(404, "NotFound", "the server could not find the requested resource");
        ApiError { details: Some(json!({})), ..error }
    }

    fn about(code: u16, reason: &'static str, resource: &Resource, name: &str, problem: &str) -> Self {
        let message = format!("{} {name:?} {problem}", resource.qualified());
        ApiError { details: Some(named(resource, name)), ..ApiError::new(code, reason, message) }
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        ApiError::about(404, "NotFound", resource, name, "not found")
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        ApiError { details: Some(json!({})), ..ApiError::new(405, "MethodNotAllowed", message) }
    }

    pub(super) fn read_only(why: &str) -> Self {
        ApiError { details: Some(json!({})), ..ApiError::new(405, "MethodNotAllowed", why) }
    }

    pub(super) fn not_acceptable(offered: &[Encoding]) -> Self {
        let media = media_types(offered);
        ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {media}"))
    }

    pub(super) fn unsupported_media(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn already_exists(resource: &Resource, name: &str) -> Self {
        ApiError::about(409, "AlreadyExists", resource, name, "already exists")
    }

    pub(super) fn conflict(resource: &Resource, name: &str, problem: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {problem}", resource.qualified());
        ApiError { details: Some(named(resource, name)), ..ApiError::new(409, "Conflict", message) }
    }

    pub(super) fn forbidden(resource: &Resource, name: &str, problem: &str) -> Self {
        ApiError::about(403, "Forbidden", resource, name, &format!("is forbidden: {problem}"))
    }

    pub(super) fn expired(version: u64, expired: Expired) -> Self {
        ApiError::new(410, "Expired", format!("too old resource version: {version} ({})", expired.oldest))
    }

    pub(super) fn too_large_version(version: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {version}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        ApiError { details, retry_after: Some(1), ..ApiError::new(504, "Timeout", message) }
    }

    pub(super) fn no_kubelet(pod: &str, asked: &str) -> Self {
        let instead = match asked {
            "log" => {
                "its echo servers write no log; `svclab logs NODE` prints the log of a node's service proxy".to_owned()
            }
            "portforward" | "proxy" => {
                format!("`svclab exec pod/{pod} -- curl http://ADDRESS:PORT/` calls it, or another one, from inside")
            }
            _ => format!("`svclab exec pod/{pod} -- COMMAND` runs a command in it, from a terminal outside the lab"),
        };
        ApiError::new(501, "NotImplemented", format!("pod {pod} has no container and no kubelet: {instead}"))
    }

    pub(super) fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        let details = Some(json!({"retryAfterSeconds": 1}));
        ApiError { details, retry_after: Some(1), ..ApiError::new(503, "ServiceUnavailable", message) }
    }

    pub(super) fn invalid(kind: &str, group: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        let details = Some(json!({"name": name, "group": group, "kind": kind, "causes": causes}));
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} {name:?} is invalid: {list}");
        ApiError { details, ..ApiError::new(422, "Invalid", message) }
    }

    pub(super) fn of_object(resource: &Resource, name: &str, error: &ObjectError) -> Self {
        let (field, problem) = match error {
            ObjectError::Field { field, problem, .. } => (field.as_str(), problem.clone()),
            ObjectError::Exhausted { .. } => return ApiError::new(500, "InternalError", error.to_string()),
            ObjectError::Missing { .. } => ("metadata.name", error.to_string()),
        };
        let message = format!("Invalid value: {problem}");
        let cause = Cause { reason: "FieldValueInvalid", field: field.to_owned(), message };
        ApiError::invalid(resource.kind.name(), resource.group, name, &[cause])
    }

    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"] = json!({"continue": token});
        }
        status
    }
}

fn named(resource: &Resource, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}
