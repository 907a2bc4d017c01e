//! Chooses a page's format by the rules of k8s.io/apiserver `pkg/endpoints/handlers/negotiation`.

use super::GROUP;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageFormat {
    Text,
    Object { version: PageVersion, yaml: bool },
}

/// Versions of the API objects, which have the same fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageVersion {
    V1Alpha1,
    V1Beta1,
}

impl PageVersion {
    pub(super) fn name(self) -> &'static str {
        match self {
            PageVersion::V1Alpha1 => "v1alpha1",
            PageVersion::V1Beta1 => "v1beta1",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotAcceptable;

pub(super) fn negotiate(accept: &str, kind: &str) -> Result<PageFormat, NotAcceptable> {
    if accept.trim().is_empty() {
        return Ok(PageFormat::Text);
    }
    let mut clauses: Vec<AcceptClause<'_>> = accept.split(',').filter_map(AcceptClause::read).collect();
    // The sort is stable: equal clauses keep their order.
    clauses.sort_by(|one, other| other.quality.total_cmp(&one.quality).then(one.wide().cmp(&other.wide())));
    clauses.iter().find_map(|clause| clause.shape(kind)).ok_or(NotAcceptable)
}

#[derive(Debug)]
struct AcceptClause<'a> {
    media: (&'a str, &'a str),
    quality: f32,
    /// The values of the parameters `as`, `g` and `v`.
    wanted: [Option<&'a str>; 3],
}

impl<'a> AcceptClause<'a> {
    fn read(text: &'a str) -> Option<AcceptClause<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| !media.is_empty())?;
        let mut clause =
            AcceptClause { media: media.split_once('/').unwrap_or((media, "*")), quality: 1.0, wanted: [None; 3] };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => clause.quality = value.trim().parse().unwrap_or(1.0),
                "as" => clause.wanted[0] = Some(value.trim()),
                "g" => clause.wanted[1] = Some(value.trim()),
                "v" => clause.wanted[2] = Some(value.trim()),
                _ => {}
            }
        }
        (clause.quality > 0.0).then_some(clause)
    }

    fn wide(&self) -> usize {
        usize::from(self.media.0 == "*") + usize::from(self.media.1 == "*")
    }

    fn takes(&self, media: (&str, &str)) -> bool {
        self.media == ("*", "*") || self.media == media || (self.media.0 == media.0 && self.media.1 == "*")
    }

    fn shape(&self, kind: &str) -> Option<PageFormat> {
        let object = |yaml| self.version(kind).map(|version| PageFormat::Object { version, yaml });
        let json = || self.takes(("application", "json")).then(|| object(false)).flatten();
        let yaml = || self.takes(("application", "yaml")).then(|| object(true)).flatten();
        let text = || (self.takes(("text", "plain")) && self.wanted == [None; 3]).then_some(PageFormat::Text);
        json().or_else(yaml).or_else(text)
    }

    fn version(&self, kind: &str) -> Option<PageVersion> {
        match self.wanted {
            [Some(of_kind), Some(GROUP), Some("v1alpha1")] if of_kind == kind => Some(PageVersion::V1Alpha1),
            [Some(of_kind), Some(GROUP), Some("v1beta1")] if of_kind == kind => Some(PageVersion::V1Beta1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_needs_kind_and_version() {
        let object = |version, yaml| Ok(PageFormat::Object { version, yaml });
        for (accept, shape) in [
            ("", Ok(PageFormat::Text)),
            ("  ", Ok(PageFormat::Text)),
            ("*/*", Ok(PageFormat::Text)),
            ("text/plain", Ok(PageFormat::Text)),
            ("text/*;q=0.5", Ok(PageFormat::Text)),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Ok(PageFormat::Text)),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", object(PageVersion::V1Beta1, false)),
            ("application/json; as=Statusz; g=config.k8s.io; v=v1alpha1", object(PageVersion::V1Alpha1, false)),
            ("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", object(PageVersion::V1Beta1, true)),
            ("application/*;v=v1beta1;g=config.k8s.io;as=Statusz", object(PageVersion::V1Beta1, false)),
            (
                "text/plain;q=0.5,application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
                object(PageVersion::V1Beta1, false),
            ),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz,*/*", Ok(PageFormat::Text)),
            ("application/json", Err(NotAcceptable)),
            ("application/xml", Err(NotAcceptable)),
            ("application/json;v=v1beta1;g=config.k8s.io", Err(NotAcceptable)),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", Err(NotAcceptable)),
            ("application/json;v=v1beta1;g=apps;as=Statusz", Err(NotAcceptable)),
            ("text/plain;v=v1beta1;g=config.k8s.io;as=Statusz", Err(NotAcceptable)),
            ("text/plain;q=0", Err(NotAcceptable)),
        ] {
            assert_eq!(negotiate(accept, "Statusz"), shape, "{accept:?}");
        }
    }
}
