use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use ipnet::IpNet;

use super::{KnownNames, is_replacement};

/// Options of iptables with free text (iptables-extensions(8)).
const RULE_OPTIONS: [&str; 4] = ["--comment", "--log-prefix", "--nflog-prefix", "--string"];
/// Options of set elements with free text (ipset(8)).
const ELEMENT_OPTIONS: [&str; 1] = ["comment"];
/// Words in the comments of proxies and the kubelet, which reveal nothing.
static WORDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| ENGLISH.split_ascii_whitespace().collect());
const ENGLISH: &str = "+ -> a accept access active addresses all an and answers are as balancer be before block by chain check cidr \
    client clients cluster clusterip clusterips come connections conntrack destination destinations drop dropping \
    dst each endpoint endpoints external externalip externally-visible externaltrafficpolicy=local filter firewall \
    for forwarding from go hairpin has health healthcheck here in incoming invalid ip ip:port ips ipvs is its \
    kube-proxy kubernetes last lb led load load-balancer loadbalancer loadbalancersourceranges local localnet \
    loopback marked marking masquerade may must no nobody node nodeport nodeports note number of off on only or own \
    packet packets pod pods policy port portal portals ports postrouting purpose ranges redirect refuse reject \
    requiring rule rules sctp self service services snat solving source sourcerange src subject tcp that the their \
    them this to traffic udp unmark use valid via visible vmap was where who with without";

pub(super) fn rules(names: &KnownNames<'_>, text: &str) -> String {
    lines(text, |line| options(names, line, &RULE_OPTIONS))
}

/// Redacts elements only: in a line that creates a set, `comment` has no value.
pub(super) fn sets(names: &KnownNames<'_>, text: &str) -> String {
    lines(text, |line| if line.starts_with("add ") { options(names, line, &ELEMENT_OPTIONS) } else { line.to_owned() })
}

fn lines(text: &str, change: impl Fn(&str) -> String) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => change(line) + "\n",
            None => change(line),
        })
        .collect()
}

fn options(names: &KnownNames<'_>, line: &str, options: &[&str]) -> String {
    let mut out = String::with_capacity(line.len());
    let (mut rest, mut is_value) = (line, false);
    while let Some((gap, word, tail)) = next_word(rest) {
        out.push_str(gap);
        if is_value {
            out.push_str(&format!("\"{}\"", comment(names, &unquoted(word))));
        } else {
            out.push_str(word);
        }
        is_value = !is_value && options.contains(&word);
        rest = tail;
    }
    out + rest
}

/// Returns leading blanks, a word or quoted text, and the rest.
fn next_word(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find(|c: char| !c.is_ascii_whitespace())?;
    let (mut quoted, mut escaped) = (false, false);
    let end = text[start..].find(|c: char| {
        let is_end = !quoted && c.is_ascii_whitespace();
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        is_end
    });
    let end = end.map_or(text.len(), |end| start + end);
    Some((&text[..start], &text[start..end], &text[end..]))
}

fn unquoted(word: &str) -> String {
    let inner = word.strip_prefix('"').map_or(word, |inner| inner.strip_suffix('"').unwrap_or(inner));
    let mut escaped = false;
    let plain = inner.chars().filter(|c| {
        escaped = *c == '\\' && !escaped;
        !escaped
    });
    plain.collect()
}

/// Replaces names of known Services, and words that no proxy writes. A comment with such words and no known Service is
/// replaced as a whole.
pub(super) fn comment(names: &KnownNames<'_>, text: &str) -> String {
    let mut has_service = false;
    let mut has_unknown = false;
    let words: Vec<String> = text
        .split(' ')
        .map(|word| {
            if is_public(word) {
                return word.to_owned();
            }
            if let Some(service) = service(names, word) {
                has_service = true;
                return service;
            }
            has_unknown = true;
            names.replaced(word)
        })
        .collect();
    if has_unknown && !has_service { names.replaced(text) } else { words.join(" ") }
}

fn is_public(word: &str) -> bool {
    let bare = word.trim_end_matches([':', ';', ',', '.', ')']).trim_start_matches('(');
    let lower = bare.to_ascii_lowercase();
    bare.is_empty()
        || is_replacement(bare)
        || WORDS.contains(&*lower)
        || bare.parse::<u64>().is_ok()
        || bare.parse::<IpAddr>().is_ok()
        || bare.parse::<SocketAddr>().is_ok()
        || bare.parse::<IpNet>().is_ok()
}

fn service(names: &KnownNames<'_>, word: &str) -> Option<String> {
    let bare = word.trim_end_matches([';', ',', '.']);
    let tail = &word[bare.len()..];
    let (namespace, rest) = bare.split_once('/')?;
    let (name, port) = rest.split_once(':').map_or((rest, None), |(name, port)| (name, Some(port)));
    let known = names.services.contains(&(namespace.to_owned(), name.to_owned()));
    (known || is_replacement(namespace) && is_replacement(name)).then(|| {
        let port = port.map(|port| format!(":{}", names.replaced(port))).unwrap_or_default();
        format!("{}/{}{port}{tail}", names.replaced(namespace), names.replaced(name))
    })
}

/// Redacts a sentence of this program or of a tool.
pub(super) fn free(names: &KnownNames<'_>, text: &str) -> String {
    let mut parts: Vec<String> = text.split('"').map(str::to_owned).collect();
    for (index, part) in parts.iter_mut().enumerate() {
        *part = if index % 2 == 1 { names.replaced(part) } else { known(names, part) };
    }
    parts.join("\"")
}

/// Common names of ports and namespaces that this program's sentences also contain.
const COMMON: [&str; 7] = ["default", "http", "https", "kube-proxy", "kube-system", "kubernetes", "svcproxy"];

fn known(names: &KnownNames<'_>, text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |end| start + end);
        let word = &rest[start..end];
        out.push_str(&rest[..start]);
        let is_name = names.known.contains(word) && !COMMON.contains(&word);
        out.push_str(&if is_name { names.replaced(word) } else { word.to_owned() });
        rest = &rest[end..];
    }
    out + rest
}
