//! Reads statements; `None` means not modelled.

use super::elements::milliseconds;
use super::expression::{self, compared_with, one_or_more, value};
use super::tokens::{TokenKind, Tokens};
use crate::names;
use crate::nft::statement::{LIMIT_UNITS, NAT_KINDS, RELATIONS, SET_OPERATIONS};
use crate::nft::{Binary, Expr, NatKind, NftVerdict, Relation, SetOperation, Statement};

pub(super) fn verdict(tokens: &mut Tokens<'_>) -> Option<NftVerdict> {
    for (word, verdict) in [
        ("accept", NftVerdict::Accept),
        ("drop", NftVerdict::Drop),
        ("return", NftVerdict::Return),
        ("continue", NftVerdict::Continue),
    ] {
        if tokens.take(word) {
            return Some(verdict);
        }
    }
    let make = if tokens.take("jump") {
        NftVerdict::Jump
    } else if tokens.take("goto") {
        NftVerdict::Goto
    } else {
        return None;
    };
    tokens.word().map(|chain| make(chain.to_owned()))
}

pub(super) fn read(tokens: &mut Tokens<'_>) -> Option<Statement> {
    if let Some(verdict) = verdict(tokens) {
        return Some(Statement::Verdict(verdict));
    }
    let token = tokens.peek().filter(|token| token.kind != TokenKind::Quoted)?;
    match token.text {
        "counter" if tokens.second() == Some("name") => counter_of_map(tokens),
        "counter" | "log" | "flow" | "last" => no_effect(tokens, token.text),
        "limit" => limit(tokens),
        "quota" => quota(tokens),
        "ct" if tokens.second() == Some("count") => connection_count(tokens),
        "reject" => reject(tokens),
        "notrack" => {
            tokens.next();
            Some(Statement::Notrack)
        }
        "tcp" if tokens.second() == Some("option") => segment_size(tokens),
        word => match (names::value(&NAT_KINDS, word), names::value(&SET_OPERATIONS, word)) {
            (Some(kind), _) => nat(tokens, kind),
            (None, Some(operation)) => element(tokens, operation),
            (None, None) => matching(tokens),
        },
    }
}

/// Reads `tcp option maxseg size set rt mtu`.
fn segment_size(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.offset();
    for word in ["tcp", "option", "maxseg", "size", "set"] {
        tokens.take(word).then_some(())?;
    }
    if tokens.take("rt") {
        tokens.take("mtu").then_some(())?;
    } else {
        tokens.word()?;
    }
    Some(Statement::NoEffect(tokens.since(from).to_owned()))
}

/// Reads `counter name KEY map @MAP`, `counter name "c"`.
fn counter_of_map(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.next()?.from;
    tokens.take("name").then_some(())?;
    if !expression::is_selector(tokens) {
        tokens.word()?;
        return Some(Statement::NoEffect(tokens.since(from).to_owned()));
    }
    match value(tokens)? {
        Expr::Map { key, map } => Some(Statement::CountBy { key: *key, map: *map }),
        _ => None,
    }
}

fn no_effect(tokens: &mut Tokens<'_>, what: &str) -> Option<Statement> {
    let from = tokens.next()?.from;
    match what {
        "counter" => {
            for word in ["packets", "bytes"] {
                if tokens.take(word) {
                    tokens.word()?;
                }
            }
        }
        "last" => {
            if tokens.take("used") {
                tokens.word()?;
            }
        }
        "flow" => {
            (tokens.take("add") || tokens.take("offload")).then_some(())?;
            tokens.word()?.starts_with('@').then_some(())?;
        }
        _ => {
            while let Some(option) = ["prefix", "level", "group", "snaplen", "queue-threshold", "flags"]
                .into_iter()
                .find(|option| tokens.take(option))
            {
                tokens.word()?;
                // `flags tcp sequence,options`, `flags ip options`.
                while option == "flags"
                    && (tokens.take(",") || tokens.take("sequence") || tokens.take("options") || tokens.take("ip"))
                {
                }
            }
        }
    }
    Some(Statement::NoEffect(tokens.since(from).to_owned()))
}

/// Whether a statement follows that elements of sets may have.
pub(super) fn is_of_element(tokens: &Tokens<'_>) -> bool {
    ["counter", "limit", "quota", "last"].into_iter().any(|word| tokens.is(word))
        || (tokens.is("ct") && tokens.second() == Some("count"))
}

/// Reads `limit rate over 10/second burst 5 packets`. Limits of bytes and named limits are unknown.
fn limit(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.next()?.from;
    let unknown = |tokens: &Tokens<'_>| {
        Some(Statement::UnknownMatch { name: "limit".to_owned(), text: tokens.since(from).to_owned() })
    };
    if tokens.take("name") {
        tokens.word()?;
        return unknown(tokens);
    }
    tokens.take("rate").then_some(())?;
    let over = tokens.take("over");
    if !over {
        tokens.take("until");
    }
    let Some((rate, unit)) = tokens.word()?.split_once('/') else {
        // `10 mbytes/second burst 256 kbytes`.
        tokens.word()?;
        if tokens.take("burst") {
            tokens.word().and(tokens.word())?;
        }
        return unknown(tokens);
    };
    let per = names::value(&LIMIT_UNITS, unit)?;
    let mut burst = 5;
    if tokens.take("burst") {
        burst = tokens.word()?.parse().ok()?;
        tokens.take("packets").then_some(())?;
    }
    let rate: u64 = rate.parse().ok()?;
    (rate > 0).then_some(Statement::Limit { rate, per, burst, over })
}

/// Reads `quota over 10 mbytes used 88 bytes`, `quota name "q"`.
fn quota(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.next()?.from;
    if tokens.take("name") {
        tokens.word()?;
    } else {
        let _ = tokens.take("over") || tokens.take("until");
        tokens.word().and(tokens.word())?;
        if tokens.take("used") {
            tokens.word().and(tokens.word())?;
        }
    }
    Some(Statement::UnknownMatch { name: "quota".to_owned(), text: tokens.since(from).to_owned() })
}

/// Reads `ct count over 20`.
fn connection_count(tokens: &mut Tokens<'_>) -> Option<Statement> {
    tokens.word().and(tokens.word())?;
    let over = tokens.take("over");
    if !over {
        tokens.take("until");
    }
    let count = tokens.word()?.parse().ok()?;
    Some(Statement::ConnectionCount { count, over })
}

fn reject(tokens: &mut Tokens<'_>) -> Option<Statement> {
    tokens.next();
    if !tokens.take("with") {
        return Some(Statement::Reject(None));
    }
    let protocol = tokens.word()?.to_owned();
    tokens.take("type");
    Some(Statement::Reject(Some((protocol, tokens.word()?.to_owned()))))
}

/// Reads `dnat ip to ADDRESS:PORT`, `dnat ip addr . port to KEY map @MAP`, `masquerade to :1024-65535 fully-random`.
fn nat(tokens: &mut Tokens<'_>, kind: NatKind) -> Option<Statement> {
    tokens.next();
    let family = ["ip6", "ip"].into_iter().find(|family| tokens.take(family)).map(str::to_owned);
    if tokens.take("addr") {
        tokens.take(".").then_some(())?;
        tokens.take("port").then_some(())?;
    }
    let (mut address, mut port) = (None, None);
    if tokens.take("to") {
        if expression::is_selector(tokens) {
            address = Some(value(tokens)?);
        } else if tokens.is(":") || tokens.peek().is_some_and(|token| token.text.starts_with(':')) {
            let text = tokens.word()?;
            port = Some(expression::word(text.strip_prefix(':')?));
        } else {
            let text = tokens.word()?;
            (address, port) = endpoint(text);
            // ` . ` may separate address and port.
            if tokens.take(".") {
                port = Some(expression::literal(tokens)?);
            }
        }
    }
    let mut flags = Vec::new();
    while let Some(flag) = ["random", "fully-random", "persistent"].into_iter().find(|flag| tokens.take(flag)) {
        flags.push(flag.to_owned());
        tokens.take(",");
    }
    let missing = matches!(kind, NatKind::Snat | NatKind::Dnat) && address.is_none() && port.is_none();
    (!missing).then_some(Statement::Nat { kind, family, address, port, flags })
}

/// Parses `10.0.0.1`, `10.0.0.1:80`, `10.0.0.1-10.0.0.9:80-90`, `fd00::1`, `[fd00::1]:80`.
fn endpoint(text: &str) -> (Option<Expr>, Option<Expr>) {
    if let Some(inner) = text.strip_prefix('[')
        && let Some((address, port)) = inner.split_once(']')
    {
        return (Some(expression::word(address)), port.strip_prefix(':').map(expression::word));
    }
    match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => (Some(expression::word(address)), Some(expression::word(port))),
        _ => (Some(expression::word(text)), None),
    }
}

/// Reads `update @set { ip saddr timeout 3h limit rate over 10/second : data }`.
fn element(tokens: &mut Tokens<'_>, operation: SetOperation) -> Option<Statement> {
    tokens.next();
    let set = tokens.word()?.strip_prefix('@')?.to_owned();
    tokens.take("{").then_some(())?;
    let key = one_or_more(tokens)?;
    let timeout = if tokens.take("timeout") { Some(milliseconds(tokens.word()?)?) } else { None };
    let mut statements = Vec::new();
    while is_of_element(tokens) {
        statements.push(read(tokens)?);
    }
    let data = if tokens.take(":") { Some(value(tokens)?) } else { None };
    tokens.take("}").then_some(Statement::Element { operation, set, key, data, timeout, statements })
}

/// Reads comparisons, `vmap` and `set`.
fn matching(tokens: &mut Tokens<'_>) -> Option<Statement> {
    if !expression::is_selector(tokens) && !tokens.is("(") {
        return None;
    }
    let from = tokens.offset();
    let left = one_or_more(tokens)?;
    if tokens.take("vmap") {
        return Some(Statement::VerdictMap { key: left, map: expression::set(tokens)? });
    }
    if tokens.take("set") {
        let value = value(tokens)?;
        let decides =
            matches!(&left, Expr::Meta(key) if key == "mark") || matches!(&left, Expr::Ct { key, .. } if key == "mark");
        let harmless = matches!(&left, Expr::Meta(key) if matches!(key.as_str(), "nftrace" | "priority"))
            || matches!(&left, Expr::Payload { field, .. } if matches!(field.as_str(), "dscp" | "ecn"));
        return match (decides, harmless) {
            (true, _) => Some(Statement::Set { what: left, value }),
            (false, true) => Some(Statement::NoEffect(tokens.since(from).to_owned())),
            (false, false) => None,
        };
    }
    let relation =
        RELATIONS.iter().find(|(text, _)| tokens.take(text)).map_or(Relation::Implicit, |(_, relation)| *relation);
    let right = compared_with(tokens)?;
    // `tcp flags syn / fin,syn`: value and mask.
    if tokens.take("/") {
        let mask = compared_with(tokens)?;
        let left = Expr::Binary(Binary::And, Box::new(left), Box::new(mask));
        let relation = if relation == Relation::Implicit { Relation::Equal } else { relation };
        return Some(Statement::Match { left, relation, right });
    }
    Some(Statement::Match { left, relation, right })
}
