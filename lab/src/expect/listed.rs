//! Reads `nft list table` and `nft list ruleset`.

use super::counters::{ListedRule, Ruleset};

/// The table's own entry in [`Ruleset::chains`]. Entries of sets and maps begin with the kind: `map service-ips`.
const TABLE: &str = "table";

impl Ruleset {
    /// Parses a listing. Rules, elements, and the type lines of base chains become one-line [rules](Ruleset::rules).
    /// Other lines of sets and maps are [declared](Ruleset::declared).
    pub fn parse_nft(listed: &str) -> Self {
        let mut ruleset = Ruleset::default();
        let (mut table, mut object, mut entry) = (None::<String>, None::<String>, String::new());
        for line in listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some(within) = &table else {
                table = heading(line.strip_prefix("table ").unwrap_or_default());
                ruleset.chains.extend(table.iter().map(|table| (table.clone(), TABLE.to_owned())));
                continue;
            };
            let Some(of) = &object else {
                object = heading(line);
                ruleset.chains.extend(object.iter().map(|object| (within.clone(), object.clone())));
                if line == "}" {
                    table = None;
                }
                continue;
            };
            if entry.is_empty() && line == "}" {
                object = None;
                continue;
            }
            entry = [entry.as_str(), line].join(" ").trim_start().to_owned();
            if depth(&entry) == 0 {
                let rule = |text: String| {
                    let (table, chain, packets) = (within.clone(), of.clone(), packets(&text));
                    ListedRule { table, chain, text, packets }
                };
                match elements(&entry) {
                    _ if of.starts_with("chain ") => ruleset.rules.push(rule(entry.clone())),
                    Some(elements) => ruleset.rules.extend(elements.into_iter().map(rule)),
                    None => ruleset.declared.push(rule(entry.clone())),
                }
                entry.clear();
            }
        }
        ruleset
    }
}

fn heading(line: &str) -> Option<String> {
    line.split_once('{').map(|(heading, _)| heading.trim_end().to_owned()).filter(|heading| !heading.is_empty())
}

fn elements(entry: &str) -> Option<Vec<String>> {
    let elements = entry.strip_prefix("elements = {").and_then(|rest| rest.strip_suffix('}'))?;
    Some(split(elements))
}

/// Splits elements at commas, except in braces and quotes.
fn split(elements: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    for piece in elements.split(',') {
        part.push_str(piece);
        if depth(&part) == 0 && part.matches('"').count() % 2 == 0 {
            parts.push(std::mem::take(&mut part).trim().to_owned());
        } else {
            part.push(',');
        }
    }
    parts
}

fn depth(text: &str) -> i32 {
    let (mut depth, mut quoted) = (0, false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth -= 1,
            _ => {}
        }
    }
    depth
}

fn packets(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("counter packets ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"table ip kube-proxy {
	comment "rules for kube-proxy"
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "a map, with { and ,"
		elements = { 203.0.113.1 . tcp . 80 : goto external-web,
			     10.96.160.30 . tcp . 80 counter packets 7 bytes 420 : goto service-web }
	}

	set affinity-web {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
	}

	chain services {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.0/16 counter packets 3 bytes 180 drop comment "unused { addresses"
		ip daddr . meta l4proto . th dport vmap @service-ips
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.2 . 8080,
			1 : 10.244.2.2 . 8080 }
	}
}
table inet mine {
	chain none {
	}
}
"#;

    #[test]
    fn chains_sets_maps_rules_and_elements_are_read() {
        let ruleset = Ruleset::parse_nft(LISTED);
        let names: Vec<(&str, &str)> = ruleset.chains.iter().map(|(table, name)| (&**table, &**name)).collect();
        let own =
            ["table", "map service-ips", "set affinity-web", "chain services"].map(|name| ("ip kube-proxy", name));
        assert_eq!(names, [&own[..], &[("inet mine", "table"), ("inet mine", "chain none")]].concat());
        let rules: Vec<(&str, &str, Option<u64>)> =
            ruleset.rules.iter().map(|rule| (&*rule.chain, &*rule.text, rule.packets)).collect();
        let counted = "10.96.160.30 . tcp . 80 counter packets 7 bytes 420 : goto service-web";
        let drops = "ip daddr 10.96.0.0/16 counter packets 3 bytes 180 drop comment \"unused { addresses\"";
        let dnat =
            "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.2 . 8080, 1 : 10.244.2.2 . 8080 }";
        assert_eq!(
            rules,
            [
                ("map service-ips", "203.0.113.1 . tcp . 80 : goto external-web", None),
                ("map service-ips", counted, Some(7)),
                ("chain services", "type nat hook prerouting priority dstnat; policy accept;", None),
                ("chain services", drops, Some(3)),
                ("chain services", "ip daddr . meta l4proto . th dport vmap @service-ips", None),
                ("chain services", dnat, None),
            ]
        );
        let declared: Vec<&str> = ruleset.declared.iter().map(|rule| &*rule.text).collect();
        let map = ["type ipv4_addr . inet_proto . inet_service : verdict", r#"comment "a map, with { and ,""#];
        assert_eq!(
            declared,
            [&map[..], &["type ipv4_addr", "size 65535", "flags dynamic,timeout", "timeout 3h"]].concat()
        );
    }

    #[test]
    fn commas_in_quotes_and_braces_do_not_end_elements() {
        assert_eq!(split(r#" 1 comment "a, b", 2 : jump { a, b } "#), [r#"1 comment "a, b""#, "2 : jump { a, b }"]);
    }

    #[test]
    fn text_that_is_no_listing_has_no_rules() {
        for text in ["", "}", "{", "table {", "table ip x {\n\tchain y {\n\t\tmeta l4proto { tcp,\n", "no\ntable\n}"] {
            assert!(Ruleset::parse_nft(text).rules.is_empty(), "{text:?}");
        }
    }
}
