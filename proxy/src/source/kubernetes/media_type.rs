//! The encodings of the API's objects.

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderValue};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    fn named(media_type: &str) -> Option<Encoding> {
        let name = media_type.split_once(';').map_or(media_type, |(name, _)| name).trim();
        match name {
            _ if name.eq_ignore_ascii_case(PROTOBUF) => Some(Encoding::Protobuf),
            _ if name.eq_ignore_ascii_case(JSON) || name == "*/*" => Some(Encoding::Json),
            _ => None,
        }
    }

    pub(super) fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Encoding::Json => JSON,
            Encoding::Protobuf => PROTOBUF,
        })
    }

    /// Returns the encoding of an answer. Without a known type it is JSON, whose decoder rejects anything else.
    pub(super) fn of(headers: &HeaderMap) -> Encoding {
        let stated = headers.get(CONTENT_TYPE).and_then(|stated| stated.to_str().ok());
        stated.and_then(Encoding::named).unwrap_or(Encoding::Json)
    }
}

/// The value of `Accept`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedTypes {
    header: HeaderValue,
    first: Encoding,
    written: Encoding,
}

impl Default for AcceptedTypes {
    fn default() -> AcceptedTypes {
        AcceptedTypes::new("", PROTOBUF)
    }
}

impl AcceptedTypes {
    /// Requests are written in `content_type`. As in client-go, `accepted` replaces `content_type` if not empty. Types that this proxy cannot decode are left out.
    pub fn new(accepted: &str, content_type: &str) -> AcceptedTypes {
        let stated = if accepted.trim().is_empty() { content_type } else { accepted };
        let mut types: Vec<&str> =
            stated.split(',').map(str::trim).filter(|stated| Encoding::named(stated).is_some()).collect();
        // client-go adds */*; this proxy could not decode CBOR.
        if accepted.trim().is_empty() && types.first().is_none_or(|first| *first == PROTOBUF) {
            types = vec![PROTOBUF, JSON];
        }
        let first = types.first().and_then(|first| Encoding::named(first));
        let written = Encoding::named(content_type).unwrap_or(Encoding::Protobuf);
        match (HeaderValue::from_str(&types.join(",")), first) {
            (Ok(header), Some(first)) => AcceptedTypes { header, first, written },
            _ => AcceptedTypes { header: HeaderValue::from_static(JSON), first: Encoding::Json, written },
        }
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The encoding that servers choose unless they lack it.
    pub(super) fn first(&self) -> Encoding {
        self.first
    }

    pub(super) fn written(&self) -> Encoding {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_types_are_those_of_the_configuration_that_can_be_decoded() {
        let json_second = "application/vnd.kubernetes.protobuf,application/json";
        for (accepted, content_type, header, first) in [
            ("", PROTOBUF, json_second, Encoding::Protobuf),
            ("", "", json_second, Encoding::Protobuf),
            ("", "application/cbor", json_second, Encoding::Protobuf),
            ("", JSON, JSON, Encoding::Json),
            ("application/json", PROTOBUF, JSON, Encoding::Json),
            ("application/json;q=0.5, application/cbor", PROTOBUF, "application/json;q=0.5", Encoding::Json),
            (json_second, JSON, json_second, Encoding::Protobuf),
            (PROTOBUF, JSON, PROTOBUF, Encoding::Protobuf),
            ("application/cbor", PROTOBUF, JSON, Encoding::Json),
            ("application/json;\n", PROTOBUF, "application/json;", Encoding::Json),
        ] {
            let types = AcceptedTypes::new(accepted, content_type);
            assert_eq!((types.header(), types.first()), (HeaderValue::from_static(header), first), "{accepted:?}");
        }
    }

    #[test]
    fn answers_name_their_encoding() {
        for (stated, encoding) in [
            (Some("application/vnd.kubernetes.protobuf"), Encoding::Protobuf),
            (Some("application/vnd.kubernetes.protobuf;stream=watch"), Encoding::Protobuf),
            (Some("application/json"), Encoding::Json),
            (Some("text/html"), Encoding::Json),
            (None, Encoding::Json),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(stated) = stated {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(stated));
            }
            assert_eq!(Encoding::of(&headers), encoding, "{stated:?}");
        }
    }
}
