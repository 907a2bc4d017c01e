//! `/statusz` and `/flagz` (KEP-4827, KEP-4828; k8s.io/apiserver `pkg/server/statusz` and `flagz`): text, or an API
//! object if the client requests its kind and version.

mod flagz;
mod negotiate;
mod statusz;

use hyper::StatusCode;
use hyper::header::{HeaderValue, WARNING};
use serde_json::{Value, json};

use crate::http::{HttpReply, json, reply};
use negotiate::{NotAcceptable, PageFormat, PageVersion, negotiate};

pub use flagz::Flagz;
pub use statusz::Statusz;

const COMPONENT: &str = "svcproxy";
const GROUP: &str = "config.k8s.io";
/// kube-proxy's warning.
const NO_MACHINE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                          and is for debugging purposes only.";

trait ZPage {
    const KIND: &'static str;

    /// Returns the text page without its header.
    fn text(&self) -> String;

    /// Returns the API object without type and name.
    fn fields(&self) -> Value;
}

fn answer<P: ZPage>(page: &P, accept: &str) -> HttpReply {
    match negotiate(accept, P::KIND) {
        Ok(PageFormat::Text) => {
            let body = format!("\n{COMPONENT} {}\n{NO_MACHINE}\n{}", P::KIND.to_lowercase(), page.text());
            reply(StatusCode::OK, "text/plain; charset=utf-8", body)
        }
        Ok(PageFormat::Object { version, yaml }) => object(page, version, yaml),
        Err(NotAcceptable) => not_acceptable(),
    }
}

fn object<P: ZPage>(page: &P, version: PageVersion, yaml: bool) -> HttpReply {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{}", version.name()),
        "kind": P::KIND,
        "metadata": { "name": COMPONENT },
    });
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), page.fields()) {
        object.extend(fields);
    }
    let mut sent = match yaml {
        false => json(StatusCode::OK, &object),
        true => match serde_saphyr::to_string(&object) {
            Ok(text) => reply(StatusCode::OK, "application/yaml", text),
            Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", format!("{error}\n")),
        },
    };
    if version == PageVersion::V1Alpha1 {
        let older = match P::KIND {
            Statusz::KIND => {
                r#"299 - "This version of the statusz endpoint is deprecated. Please use a newer version.""#
            }
            _ => r#"299 - "This version of the flagz endpoint is deprecated. Please use a newer version.""#,
        };
        sent.headers_mut().insert(WARNING, HeaderValue::from_static(older));
    }
    sent
}

fn not_acceptable() -> HttpReply {
    let message = "only the following media types are accepted: application/json, application/yaml, text/plain; the first two with \
                   the parameters g=config.k8s.io, v and as";
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NotAcceptable", "code": 406,
    });
    json(StatusCode::NOT_ACCEPTABLE, &status)
}
