use std::net::IpAddr;

use super::elements;
use super::tokens::{TokenKind, Tokens};
use crate::nft::selector::{BARE_META, HEADERS};
use crate::nft::{Binary, Expr};

const BINARIES: [(&str, Binary, u8); 9] = [
    ("<<", Binary::Left, 4),
    (">>", Binary::Right, 4),
    ("&", Binary::And, 3),
    ("and", Binary::And, 3),
    ("^", Binary::Xor, 2),
    ("xor", Binary::Xor, 2),
    ("|", Binary::Or, 1),
    ("or", Binary::Or, 1),
    ("lshift", Binary::Left, 4),
];

pub(super) fn word(text: &str) -> Expr {
    let address = |text: &str| text.parse::<IpAddr>().is_ok();
    let plain = |text: &str| Box::new(Expr::Word(text.to_owned()));
    if let Some((head, length)) = text.split_once('/')
        && address(head)
        && let Ok(length) = length.parse()
    {
        return Expr::Prefix(plain(head), length);
    }
    if let Some((first, last)) = text.split_once('-') {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if (address(first) && address(last)) || (number(first) && number(last)) {
            return Expr::Range(plain(first), plain(last));
        }
    }
    Expr::Word(text.to_owned())
}

pub(super) fn literal(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let token = tokens.peek()?;
    match token.kind {
        TokenKind::Quoted => {
            tokens.next();
            Some(Expr::Word(token.text.to_owned()))
        }
        TokenKind::Word if !token.text.starts_with('@') => {
            tokens.next();
            Some(word(token.text))
        }
        _ => None,
    }
}

fn operand(tokens: &mut Tokens<'_>) -> Option<Expr> {
    if tokens.take("(") {
        let inner = binary(tokens, 0)?;
        return tokens.take(")").then_some(inner);
    }
    if is_selector(tokens) { selector(tokens) } else { literal(tokens) }
}

fn binary(tokens: &mut Tokens<'_>, at_least: u8) -> Option<Expr> {
    let mut left = operand(tokens)?;
    while let Some((text, operation, strength)) =
        BINARIES.iter().find(|(text, _, strength)| *strength > at_least && tokens.is(text))
    {
        tokens.take(text);
        let right = binary(tokens, *strength)?;
        left = Expr::Binary(*operation, Box::new(left), Box::new(right));
    }
    Some(left)
}

pub(super) fn is_selector(tokens: &Tokens<'_>) -> bool {
    let Some(token) = tokens.peek().filter(|token| token.kind == TokenKind::Word) else { return false };
    let text = token.text;
    let field = |word: Option<&str>| word.is_some_and(|word| !matches!(word, "." | ":" | "/"));
    (HEADERS.contains(&text) && field(tokens.second()))
        || BARE_META.contains(&text)
        || matches!(text, "meta" | "ct" | "socket" | "fib" | "numgen" | "jhash" | "symhash")
        || ["@ll", "@nh", "@th"].contains(&text)
}

fn number(tokens: &mut Tokens<'_>) -> Option<u32> {
    let text = tokens.word()?;
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn selector(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let first = tokens.word()?;
    match first {
        "meta" => Some(Expr::Meta(tokens.word()?.to_owned())),
        bare if BARE_META.contains(&bare) => Some(Expr::Meta(bare.to_owned())),
        "ct" => ct(tokens),
        "socket" => {
            let key = tokens.word()?;
            let level = if tokens.take("level") { format!(" level {}", tokens.word()?) } else { String::new() };
            Some(Expr::Socket(format!("{key}{level}")))
        }
        "fib" => fib(tokens),
        "numgen" => {
            let random = match tokens.word()? {
                "random" => true,
                "inc" => false,
                _ => return None,
            };
            let modulus = tokens.take("mod").then(|| number(tokens))??;
            let offset = if tokens.take("offset") { number(tokens)? } else { 0 };
            Some(Expr::Numgen { random, modulus, offset })
        }
        "jhash" | "symhash" => {
            let key = if first == "jhash" { Some(Box::new(one_or_more(tokens)?)) } else { None };
            let modulus = tokens.take("mod").then(|| number(tokens))??;
            let seed = if tokens.take("seed") { Some(number(tokens)?) } else { None };
            let offset = if tokens.take("offset") { number(tokens)? } else { 0 };
            Some(Expr::Hash { key, modulus, seed, offset })
        }
        "@ll" | "@nh" | "@th" => {
            let offset = tokens.take(",").then(|| number(tokens))??;
            let length = tokens.take(",").then(|| number(tokens))??;
            Some(Expr::Raw { base: first.trim_start_matches('@').to_owned(), offset, length })
        }
        protocol => {
            let mut field = tokens.word()?.to_owned();
            if protocol == "arp" && matches!(field.as_str(), "saddr" | "daddr") {
                field = format!("{field} {}", tokens.word()?);
            }
            Some(Expr::Payload { protocol: protocol.to_owned(), field })
        }
    }
}

fn ct(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let mut key = tokens.word()?;
    let mut direction = None;
    if matches!(key, "original" | "reply") {
        direction = Some(key.to_owned());
        key = tokens.word()?;
    }
    let key = if matches!(key, "ip" | "ip6") { format!("{key} {}", tokens.word()?) } else { key.to_owned() };
    Some(Expr::Ct { direction, key })
}

/// Reads `saddr . iif type`.
fn fib(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let mut flags = vec![tokens.word()?.to_owned()];
    while tokens.take(".") {
        flags.push(tokens.word()?.to_owned());
    }
    let result = tokens.word()?.to_owned();
    Some(Expr::Fib { flags, result })
}

/// Reads an expression without concatenation.
pub(super) fn one(tokens: &mut Tokens<'_>) -> Option<Expr> {
    binary(tokens, 0)
}

/// Reads an expression or concatenation.
pub(super) fn one_or_more(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let first = binary(tokens, 0)?;
    if !tokens.is(".") {
        return Some(first);
    }
    let mut parts = vec![first];
    while tokens.take(".") {
        parts.push(binary(tokens, 0)?);
    }
    Some(Expr::Concat(parts))
}

pub(super) fn set(tokens: &mut Tokens<'_>) -> Option<Expr> {
    if tokens.is("{") {
        return elements::read(tokens).map(Expr::Elements);
    }
    let token = tokens.peek().filter(|token| token.kind == TokenKind::Word)?;
    let name = token.text.strip_prefix('@')?;
    tokens.next();
    Some(Expr::SetRef(name.to_owned()))
}

pub(super) fn value(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let key = one_or_more(tokens)?;
    if !tokens.take("map") {
        return Some(key);
    }
    Some(Expr::Map { key: Box::new(key), map: Box::new(set(tokens)?) })
}

pub(super) fn compared_with(tokens: &mut Tokens<'_>) -> Option<Expr> {
    if let Some(set) = set(tokens) {
        return Some(set);
    }
    let mut first = if tokens.is("(") { operand(tokens)? } else { literal(tokens)? };
    while tokens.take("|") {
        first = Expr::Binary(Binary::Or, Box::new(first), Box::new(literal(tokens)?));
    }
    if tokens.is(",") {
        let mut flags = vec![first];
        while tokens.take(",") {
            flags.push(literal(tokens)?);
        }
        return Some(Expr::Flags(flags));
    }
    if tokens.is(".") {
        let mut parts = vec![first];
        while tokens.take(".") {
            parts.push(literal(tokens)?);
        }
        return Some(Expr::Concat(parts));
    }
    Some(first)
}
