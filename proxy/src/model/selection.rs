use std::fmt;
use std::str::FromStr;

use super::ObjectKey;

/// Services by namespace and name; `*` stands for any characters of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSelection(Vec<(String, String)>);

impl ServiceSelection {
    pub fn contains(&self, service: &ObjectKey) -> bool {
        let fits = |(namespace, name): &(String, String)| {
            matches(namespace, &service.namespace) && matches(name, &service.name)
        };
        self.0.iter().any(fits)
    }
}

impl FromStr for ServiceSelection {
    type Err = String;

    /// Parses `namespace/name,namespace/*`.
    fn from_str(text: &str) -> Result<ServiceSelection, String> {
        let is_pattern = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte))
        };
        let one = |text: &str| match text.split_once('/') {
            Some((namespace, name)) if is_pattern(namespace) && is_pattern(name) => {
                Ok((namespace.to_owned(), name.to_owned()))
            }
            _ => Err(format!("{text:?} is not NAMESPACE/NAME; use NAMESPACE/* for all Services of a namespace")),
        };
        text.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(ServiceSelection)
    }
}

impl fmt::Display for ServiceSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.0.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        f.write_str(&each.join(","))
    }
}

/// Takes each literal part where it is found first, so the time is bounded by the product of the lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(begin) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_of_one_name() {
        for (selection, service, contained) in [
            ("*/*", "default/web", true),
            ("default/web", "default/web", true),
            ("default/web", "default/web-2", false),
            ("default/web", "other/web", false),
            ("default/*", "default/web", true),
            ("default/*", "default-2/web", false),
            ("team-*/api, default/web", "team-a/api", true),
            ("team-*/*-db-*", "team-a/the-db-1", true),
            ("team-*/*-db-*", "team-a/db-1", false),
            ("a*a/x", "a/x", false),
            ("a*b*c/x", "abc/x", true),
            ("a*b*c/x", "abcb/x", false),
        ] {
            let (namespace, name) = service.split_once('/').unwrap();
            let service = ObjectKey::new(namespace, name);
            let parsed: ServiceSelection = selection.parse().unwrap();
            assert_eq!(parsed.contains(&service), contained, "{selection} {service}");
        }
    }

    #[test]
    fn an_entry_without_namespace_or_name_is_an_error() {
        for wrong in ["", "default", "default/", "/web", "default/web,", "a b/c", "default/web/http", "x/\"; drop"] {
            assert!(wrong.parse::<ServiceSelection>().unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
        let parsed: ServiceSelection = "a/b, c/*".parse().unwrap();
        assert_eq!(parsed.to_string(), "a/b,c/*");
    }
}
