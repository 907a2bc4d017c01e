use std::collections::{BTreeMap, BTreeSet};

use super::error::ApiError;
use crate::objects::{ObjectKind, Record, selectable};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<LabelRequirement>,
    /// The terms: field, value, whether the field must equal the value.
    fields: Vec<(String, String, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelOperator {
    In(BTreeSet<String>),
    /// Also matches objects without the label.
    NotIn(BTreeSet<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

impl Selector {
    pub(super) fn parse(kind: ObjectKind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = parse_labels(labels)
            .map_err(|problem| ApiError::bad_request(format!("unable to parse labelSelector: {problem}")))?;
        Ok(Selector { labels, fields: parse_fields(kind, fields)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, record: &Record) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(&record.labels))
            && self.fields.iter().all(|(name, value, equal)| (record.field(name) == *value) == *equal)
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelOperator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::Missing => value.is_none(),
            LabelOperator::Greater(than) => number().is_some_and(|number| number > *than),
            LabelOperator::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    split(text)?.into_iter().map(|term| requirement(term.trim())).collect()
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut terms, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, sign) in text.char_indices() {
        match sign {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("found {sign:?} out of place in {text:?}")),
            ',' if !inside => {
                terms.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("no \")\" at the end of {text:?}"));
    }
    terms.push(&text[begin..]);
    if text.trim().is_empty() { Ok(Vec::new()) } else { Ok(terms) }
}

fn requirement(term: &str) -> Result<LabelRequirement, String> {
    let of = |key: &str, operator| {
        let key = key.trim();
        if !is_qualified(key) {
            return Err(format!("{key:?} is no label name (in {term:?})"));
        }
        Ok(LabelRequirement { key: key.to_owned(), operator })
    };
    if let Some(list) = term.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or_else(|| format!("no \"(\" in {term:?}"))?;
        let values = list.split(',').map(|value| label_value(value.trim())).collect::<Result<BTreeSet<_>, _>>()?;
        let (key, word) = head.trim().rsplit_once(char::is_whitespace).unwrap_or(("", head));
        return match word {
            "in" => of(key, LabelOperator::In(values)),
            "notin" => of(key, LabelOperator::NotIn(values)),
            _ => Err(format!("{term:?}: expected in or notin before the list")),
        };
    }
    let one = |value: &str| Ok::<_, String>(BTreeSet::from([label_value(value.trim())?]));
    let number = |text: &str| text.trim().parse().map_err(|_| format!("{term:?}: expected a number"));
    if let Some((key, value)) = term.split_once("!=") {
        of(key, LabelOperator::NotIn(one(value)?))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        of(key, LabelOperator::In(one(value)?))
    } else if let Some((key, value)) = term.split_once('>') {
        of(key, LabelOperator::Greater(number(value)?))
    } else if let Some((key, value)) = term.split_once('<') {
        of(key, LabelOperator::Less(number(value)?))
    } else if let Some(key) = term.strip_prefix('!') {
        of(key, LabelOperator::Missing)
    } else {
        of(term, LabelOperator::Exists)
    }
}

fn label_value(text: &str) -> Result<String, String> {
    if is_label_value(text) { Ok(text.to_owned()) } else { Err(format!("{text:?} is no label value")) }
}

/// Whether `text` is empty or at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub(super) fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Whether `text` is a label or annotation name: an optional DNS domain and `/`, then a non-empty label value.
pub(super) fn is_qualified(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_subdomain)
}

pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_dns_label(label, 253))
}

pub(super) fn is_dns_label(text: &str, length: usize) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= length
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

fn parse_fields(kind: ObjectKind, text: &str) -> Result<Vec<(String, String, bool)>, ApiError> {
    let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let parts = term.split_once("!=").map(|(field, value)| (field, value, false));
            let parts =
                parts.or_else(|| term.split_once("==").or_else(|| term.split_once('=')).map(|(f, v)| (f, v, true)));
            let Some((field, value, equal)) = parts else {
                return Err(ApiError::bad_request(format!("invalid field selector {term:?}: expected field=value")));
            };
            if !selectable(kind).contains(&field) {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
            Ok((field.to_owned(), value.to_owned(), equal))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse_labels(selector).unwrap().iter().all(|requirement| requirement.holds(&labels))
    }

    #[test]
    fn a_label_selector_matches_its_labels() {
        let web: &[(&str, &str)] = &[("app", "web"), ("tier", "front"), ("example.com/size", "5")];
        let none: &[(&str, &str)] = &[];
        for (selector, on_web, on_none) in [
            ("", true, true),
            ("app", true, false),
            ("!app", false, true),
            ("app=web", true, false),
            ("app==web,tier!=back", true, false),
            ("app!=web", false, true),
            ("app in (web,db)", true, false),
            ("app in (db),tier", false, false),
            ("app notin (web, db)", false, true),
            ("app notin (db)", true, true),
            ("example.com/size>4,example.com/size<6", true, false),
            ("!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name", true, true),
            ("app in ()", false, false),
        ] {
            assert_eq!((matches(selector, web), matches(selector, none)), (on_web, on_none), "{selector}");
        }
    }

    #[test]
    fn a_malformed_selector_is_rejected() {
        for selector in ["app in web", "app in (web", "=web", "a b", "app=we b", ",", "app>x", "(a)", "app on (web)"] {
            assert!(parse_labels(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn a_field_selector_accepts_fields_of_its_kind_only() {
        assert!(parse_fields(ObjectKind::Pod, "spec.nodeName=a,metadata.name!=b").is_ok());
        let error = parse_fields(ObjectKind::Service, "spec.nodeName=a").unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, "field label not supported: spec.nodeName"));
        assert!(parse_fields(ObjectKind::Node, "metadata.name").is_err());
    }
}
