//! Content negotiation.

use super::error::ApiError;
use super::kubectl;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseForm {
    Objects,
    /// `meta.k8s.io/v1 Table`.
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`.
    Metadata,
}

/// Ignores protobuf: clients that prefer it also accept JSON.
pub(super) fn accept(header: Option<&str>) -> Result<ResponseForm, ApiError> {
    let header = header.filter(|header| !header.trim().is_empty()).unwrap_or("*/*");
    header.split(',').find_map(one).ok_or_else(ApiError::not_acceptable)
}

fn one(media: &str) -> Option<ResponseForm> {
    let mut parts = media.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "*/*" | "application/*") {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let get = |name: &str| parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
    match (get("as"), get("g"), get("v")) {
        ("", ..) => Some(ResponseForm::Objects),
        ("Table", "meta.k8s.io", "v1") if kubectl::TABLES => Some(ResponseForm::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => Some(ResponseForm::Metadata),
        // Ignores aggregated discovery and older table versions: such clients also accept plain JSON.
        _ => None,
    }
}

pub(super) fn content(header: Option<&str>) -> Result<(), ApiError> {
    match media(header) {
        "" | "application/json" => Ok(()),
        // `kubectl create` sends protobuf for built-in kinds.
        PROTOBUF => Err(ApiError::unsupported_media(
            "application/json; `kubectl create … --dry-run=client -o yaml | kubectl apply -f -` sends that",
        )),
        _ => Err(ApiError::unsupported_media("application/json")),
    }
}

pub(super) fn media(header: Option<&str>) -> &str {
    header.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_served_media_type_is_chosen() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (header, expected) in [
            ("", Some(ResponseForm::Objects)),
            ("*/*", Some(ResponseForm::Objects)),
            ("application/json", Some(ResponseForm::Objects)),
            (protobuf, None),
            (&format!("{protobuf},application/json"), Some(ResponseForm::Objects)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(ResponseForm::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(ResponseForm::Objects)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Some(ResponseForm::Metadata),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(ResponseForm::Objects),
            ),
            ("text/html", None),
        ] {
            assert_eq!(accept(Some(header)).ok(), expected, "{header}");
        }
    }

    #[test]
    fn a_protobuf_body_is_rejected() {
        let refused = content(Some("application/vnd.kubernetes.protobuf")).unwrap_err();
        assert!(refused.code == 415 && refused.message.contains("kubectl apply -f -"), "{refused:?}");
        assert_eq!(content(Some("application/json; charset=utf-8")), Ok(()));
        assert_eq!(content(None), Ok(()));
    }
}
