#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePart {
    pub text: String,
    pub address: Option<String>,
}

/// Splits `source` into text and links; the pieces concatenate to `source`.
#[must_use]
pub fn source_parts(source: &str) -> Vec<SourcePart> {
    let mut parts: Vec<SourcePart> = Vec::new();
    let mut rest = source;
    while !rest.is_empty() {
        let (text, address) = match document(rest) {
            Some((length, address)) => (&rest[..length], Some(address)),
            None => (word(rest), None),
        };
        rest = &rest[text.len()..];
        match parts.last_mut() {
            Some(last) if address.is_none() && last.address.is_none() => last.text.push_str(text),
            _ => parts.push(SourcePart { text: text.to_owned(), address }),
        }
    }
    parts
}

/// Returns the text before the next possible document name.
fn word(text: &str) -> &str {
    let end = text.find([' ', '(']).map_or(text.len(), |at| at + 1);
    &text[..end]
}

/// Returns length and address of the document name at the start of `text`.
fn document(text: &str) -> Option<(usize, String)> {
    let number = |before: &str| {
        let rest = text.strip_prefix(before)?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        (digits > 0).then(|| (before.len() + digits, &rest[..digits]))
    };
    if let Some(page) = text.strip_prefix("page ") {
        let end = page.find([',', ';', ':', ' ']).unwrap_or(page.len());
        // The words after "page" may name no page, as in "no page says".
        return page[..end]
            .contains('/')
            .then(|| ("page ".len() + end, format!("https://kubernetes.io/docs/{}/", &page[..end])));
    }
    if let Some((length, number)) = number("KEP-") {
        return Some((length, format!("https://kep.k8s.io/{number}")));
    }
    // GitHub redirects from the address to a pull request of that number.
    if let Some((length, number)) = number("kubernetes#") {
        return Some((length, format!("https://github.com/kubernetes/kubernetes/issues/{number}")));
    }
    if let Some((length, number)) = number("RFC ") {
        return Some((length, format!("https://www.rfc-editor.org/rfc/rfc{number}")));
    }
    let cve = text.strip_prefix("CVE-")?;
    let end = cve.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(cve.len());
    let length = "CVE-".len() + end;
    Some((length, format!("https://www.cve.org/CVERecord?id={}", &text[..length])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promises::Promise;

    fn addresses(source: &str) -> Vec<(String, String)> {
        source_parts(source).into_iter().filter_map(|part| Some((part.text, part.address?))).collect()
    }

    #[test]
    fn documents_have_their_addresses() {
        let found = |source: &str, text: &str, address: &str| {
            let all = addresses(source);
            assert!(all.contains(&(text.to_owned(), address.to_owned())), "{source}: {all:?}");
        };
        let page = "https://kubernetes.io/docs/concepts/services-networking/service/";
        found(
            "API ServiceSpec.externalIPs; page concepts/services-networking/service, External IPs",
            "page concepts/services-networking/service",
            page,
        );
        found("API EndpointHints.forNodes; KEP-3015", "KEP-3015", "https://kep.k8s.io/3015");
        found(
            "decided by (kubernetes#135593)",
            "kubernetes#135593",
            "https://github.com/kubernetes/kubernetes/issues/135593",
        );
        found("RFC 1122 3.2.1.3; CVE-2020-8558", "RFC 1122", "https://www.rfc-editor.org/rfc/rfc1122");
        found("RFC 1122 3.2.1.3; CVE-2020-8558", "CVE-2020-8558", "https://www.cve.org/CVERecord?id=CVE-2020-8558");
        assert_eq!(addresses("upstream's test LoadBalancer, rows 'implicitly allowed'"), []);
    }

    #[test]
    fn the_pieces_of_a_source_are_the_whole_source() {
        for promise in Promise::all() {
            let whole: String = source_parts(promise.source).into_iter().map(|part| part.text).collect();
            assert_eq!(whole, promise.source);
            // These words name no page.
            let source = promise.source.replace("no page says", "");
            let named =
                ["page ", "KEP-", "kubernetes#", "RFC ", "CVE-"].iter().map(|name| source.matches(name).count());
            assert_eq!(addresses(promise.source).len(), named.sum::<usize>(), "{}", promise.source);
        }
    }
}
