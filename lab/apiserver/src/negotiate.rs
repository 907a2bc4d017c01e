//! Content negotiation.

use super::encoding::{Encoding, media_types};
use super::error::ApiError;
use super::kubectl;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseForm {
    Objects,
    /// `meta.k8s.io/v1 Table`.
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`.
    Metadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) form: ResponseForm,
    pub(super) encoding: Encoding,
}

/// Chooses by kube-apiserver's order: the quality, then the position in the header, media types with `*` last.
pub(super) fn accept(header: Option<&str>, offered: &[Encoding]) -> Result<Accepted, ApiError> {
    let header = header.filter(|header| !header.trim().is_empty()).unwrap_or("*/*");
    let mut ranges: Vec<MediaRange<'_>> = header.split(',').map(MediaRange::parse).collect();
    ranges.sort_by(|one, other| other.quality.total_cmp(&one.quality).then(one.wildcards.cmp(&other.wildcards)));
    let chosen = ranges.iter().find_map(|range| {
        let encoding = *offered.iter().find(|encoding| range.contains(encoding.media()))?;
        Some(Accepted { form: range.form(encoding)?, encoding })
    });
    chosen.ok_or_else(|| ApiError::not_acceptable(offered))
}

/// A media type of `Accept`, with its parameters.
struct MediaRange<'a> {
    media: &'a str,
    wildcards: usize,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, value)| value.parse().ok());
        MediaRange { media, wildcards: media.matches('*').count(), quality: quality.unwrap_or(1.0), parameters }
    }

    fn contains(&self, media: &str) -> bool {
        matches!(self.media, "*/*" | "application/*") || self.media == media
    }

    fn form(&self, encoding: Encoding) -> Option<ResponseForm> {
        let get = |name: &str| self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
        match (get("as"), get("g"), get("v")) {
            ("", ..) => Some(ResponseForm::Objects),
            // Like kube-apiserver, makes no tables in protobuf.
            ("Table", "meta.k8s.io", "v1") if kubectl::TABLES && encoding == Encoding::Json => {
                Some(ResponseForm::Table)
            }
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                Some(ResponseForm::Metadata)
            }
            // Ignores aggregated discovery and older table versions: such clients also accept plain JSON.
            _ => None,
        }
    }
}

pub(super) fn content(header: Option<&str>) -> Result<Encoding, ApiError> {
    let media = media(header);
    let known = Encoding::ALL.into_iter().find(|encoding| encoding.media() == media);
    known
        .or(media.is_empty().then_some(Encoding::Json))
        .ok_or_else(|| ApiError::unsupported_media(&media_types(&Encoding::ALL)))
}

pub(super) fn media(header: Option<&str>) -> &str {
    header.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_served_media_type_of_the_highest_quality_is_chosen() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        let json = |form| Some(Accepted { form, encoding: Encoding::Json });
        let protobuf_of = |form| Some(Accepted { form, encoding: Encoding::Protobuf });
        let (objects, table, metadata) = (ResponseForm::Objects, ResponseForm::Table, ResponseForm::Metadata);
        for (header, expected) in [
            ("", json(objects)),
            ("*/*", json(objects)),
            ("application/json", json(objects)),
            (protobuf, protobuf_of(objects)),
            (&format!("{protobuf};stream=watch"), protobuf_of(objects)),
            (&format!("{protobuf},application/json"), protobuf_of(objects)),
            (&format!("application/json,{protobuf}"), json(objects)),
            (&format!("application/json;q=0.8, {protobuf}"), protobuf_of(objects)),
            (&format!("*/*, {protobuf}"), protobuf_of(objects)),
            (&format!("{protobuf};q=0.5, */*;q=0.6"), json(objects)),
            (&format!("{protobuf};as=Table;v=v1;g=meta.k8s.io"), None),
            (&format!("{protobuf};as=Table;v=v1;g=meta.k8s.io,application/json"), json(objects)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", json(table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", json(objects)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json", json(metadata)),
            (&format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), protobuf_of(metadata)),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", json(objects)),
            ("text/html", None),
        ] {
            assert_eq!(accept(Some(header), &Encoding::ALL).ok(), expected, "{header}");
        }
        assert_eq!(accept(Some(protobuf), &[Encoding::Json]).unwrap_err().code, 406);
    }

    #[test]
    fn a_body_is_json_unless_stated() {
        assert_eq!(content(Some("application/vnd.kubernetes.protobuf")), Ok(Encoding::Protobuf));
        assert_eq!(content(Some("application/json; charset=utf-8")), Ok(Encoding::Json));
        assert_eq!(content(None), Ok(Encoding::Json));
        assert_eq!(content(Some("application/yaml")).unwrap_err().code, 415);
    }
}
