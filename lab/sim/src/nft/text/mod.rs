//! Reads `nft list ruleset` in one pass, without going back.

mod elements;
mod expression;
mod statement;
mod tokens;

use super::{
    BaseChain, Chain, DeclaredType, NamedCounter, NftReadError, Rule, Ruleset, Set, SetData, Statement, Table,
    TableFamily, priority,
};
use crate::rules::ChainPolicy;
use tokens::{TokenKind, Tokens};

type ReadResult<T> = Result<T, NftReadError>;

pub(super) fn read(text: &str) -> ReadResult<Ruleset> {
    let (all, managed) = tokens::split(text)?;
    let mut tokens = Tokens::new(text, &all);
    let mut ruleset = Ruleset::default();
    let mut after = 0;
    loop {
        tokens.skip_ends();
        let line = tokens.line();
        if tokens.peek().is_none() {
            return Ok(ruleset);
        }
        if tokens.take(";") {
            continue;
        }
        if !tokens.take("table") {
            // Perhaps a secret: its text is not quoted.
            return Err(NftReadError::new(line, "expected `table`, as `nft list ruleset` prints it".to_owned()));
        }
        let mut table = table(&mut tokens)?;
        table.by_iptables = managed.iter().any(|at| (after..line).contains(at)) || table.has_chains_of_iptables();
        after = line;
        ruleset.tables.push(table);
    }
}

fn expected<T>(tokens: &mut Tokens<'_>, what: &str) -> ReadResult<T> {
    let line = tokens.line();
    let found = tokens
        .next()
        .map_or("the end", |token| if token.kind == TokenKind::End { "the end of the line" } else { token.text });
    Err(NftReadError::new(line, format!("expected {what}, found {found:?}")))
}

fn open(tokens: &mut Tokens<'_>) -> ReadResult<()> {
    if tokens.take("{") { Ok(()) } else { expected(tokens, "{") }
}

fn name(tokens: &mut Tokens<'_>, what: &str) -> ReadResult<String> {
    match tokens.word() {
        Some(name) => Ok(name.to_owned()),
        None => expected(tokens, what),
    }
}

fn table(tokens: &mut Tokens<'_>) -> ReadResult<Table> {
    let first = name(tokens, "a family or a name")?;
    let (family, name) = match TableFamily::parse(&first) {
        // A table may be named `ip`.
        Some(family) if !tokens.is("{") => (family, name(tokens, "a name")?),
        _ => (TableFamily::Ip, first),
    };
    let mut table = Table {
        family,
        name,
        by_iptables: false,
        flags: Vec::new(),
        comment: None,
        counters: Vec::new(),
        sets: Vec::new(),
        chains: Vec::new(),
    };
    open(tokens)?;
    loop {
        tokens.skip_ends();
        if tokens.take("}") {
            return Ok(table);
        }
        if tokens.take(";") {
            continue;
        }
        let line = tokens.line();
        match tokens.word() {
            Some("comment") => table.comment = Some(self::name(tokens, "a comment")?),
            Some("flags") => table.flags = words(tokens),
            Some("chain") => table.chains.push(chain(tokens, family)?),
            Some("set") => table.sets.push(set(tokens, false)?),
            Some("map") => table.sets.push(set(tokens, true)?),
            // Declarations of these objects affect no verdicts.
            Some("counter") => table.counters.push(counter(tokens)?),
            Some("flowtable" | "quota" | "limit" | "ct" | "secmark" | "synproxy" | "tunnel") => {
                while !tokens.is("{") && !tokens.at_end() {
                    tokens.next();
                }
                if !tokens.skip_braces() {
                    return expected(tokens, "{ … }");
                }
            }
            Some(word) => {
                return Err(NftReadError::new(line, format!("{word:?} is not part of a table")));
            }
            None => return expected(tokens, "something of a table"),
        }
    }
}

/// Reads `counter NAME { comment "…"; packets 1 bytes 2 }`.
fn counter(tokens: &mut Tokens<'_>) -> ReadResult<NamedCounter> {
    let mut counter = NamedCounter { name: name(tokens, "a counter's name")?, packets: 0, bytes: 0 };
    open(tokens)?;
    loop {
        tokens.skip_ends();
        if tokens.take("}") {
            return Ok(counter);
        }
        if tokens.take(";") {
            continue;
        }
        let value = |tokens: &mut Tokens<'_>| tokens.word().and_then(|word| word.parse().ok());
        match tokens.word() {
            Some("comment") => drop(tokens.word()),
            Some("packets") => counter.packets = value(tokens).unwrap_or_default(),
            Some("bytes") => counter.bytes = value(tokens).unwrap_or_default(),
            _ => return expected(tokens, "something of a counter"),
        }
    }
}

fn words(tokens: &mut Tokens<'_>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(word) = tokens.word() {
        all.push(word.to_owned());
        if !tokens.take(",") {
            break;
        }
    }
    all
}

fn chain(tokens: &mut Tokens<'_>, family: TableFamily) -> ReadResult<Chain> {
    let mut chain = Chain { name: name(tokens, "a chain's name")?, base: None, comment: None, rules: Vec::new() };
    open(tokens)?;
    loop {
        tokens.skip_ends();
        if tokens.take("}") {
            return Ok(chain);
        }
        if tokens.take(";") {
            continue;
        }
        if tokens.peek().is_none() {
            return expected(tokens, "}");
        }
        let line = tokens.line();
        // No rule begins with `type`.
        if tokens.is("type") {
            chain.base = Some(base(tokens, family)?);
        } else if tokens.take("policy") {
            let policy = policy(tokens)?;
            match &mut chain.base {
                Some(base) => base.policy = policy,
                None => return Err(NftReadError::new(line, "policy of a chain without a hook")),
            }
        } else if tokens.take("comment") {
            chain.comment = Some(name(tokens, "a comment")?);
        } else {
            chain.rules.push(rule(tokens, line));
        }
    }
}

fn policy(tokens: &mut Tokens<'_>) -> ReadResult<ChainPolicy> {
    match tokens.word() {
        Some("accept") => Ok(ChainPolicy::Accept),
        Some("drop") => Ok(ChainPolicy::Drop),
        _ => expected(tokens, "accept or drop"),
    }
}

/// Reads `type nat hook prerouting device "eth0" priority dstnat + 10; policy accept;`.
fn base(tokens: &mut Tokens<'_>, family: TableFamily) -> ReadResult<BaseChain> {
    tokens.take("type");
    let kind = name(tokens, "a type")?;
    if !tokens.take("hook") {
        return expected(tokens, "hook");
    }
    let hook = name(tokens, "a hook")?;
    let mut devices = Vec::new();
    if tokens.take("device") {
        devices.push(name(tokens, "a device")?);
    } else if tokens.take("devices") {
        tokens.take("=");
        open(tokens)?;
        devices = words(tokens);
        if !tokens.take("}") {
            return expected(tokens, "}");
        }
    }
    if !tokens.take("priority") {
        return expected(tokens, "priority");
    }
    let line = tokens.line();
    let number = name(tokens, "a priority")?;
    let unknown = || NftReadError::new(line, format!("priority {number:?} is not known here"));
    let mut priority = priority(family, &number).ok_or_else(unknown)?;
    for (sign, factor) in [("+", 1), ("-", -1)] {
        if tokens.take(sign) {
            let more: i32 = name(tokens, "a number")?.parse().map_err(|_| unknown())?;
            priority += factor * more;
        }
    }
    let mut base = BaseChain { kind, hook, priority, devices: Some(devices), policy: ChainPolicy::Accept, late: false };
    tokens.take(";");
    if tokens.take("policy") {
        base.policy = policy(tokens)?;
    }
    Ok(base)
}

/// Reads a rule. Keeps the first unmodelled statement and the rest as text.
fn rule(tokens: &mut Tokens<'_>, line: usize) -> Rule {
    let mut rule = Rule { line, statements: Vec::new(), comment: None };
    while !tokens.at_end() {
        let (from, depth) = (tokens.offset(), tokens.depth());
        if tokens.take("comment") {
            rule.comment = tokens.word().map(str::to_owned);
            continue;
        }
        match statement::read(tokens) {
            Some(statement) => rule.statements.push(statement),
            None => {
                tokens.skip_statement(depth);
                rule.statements.push(Statement::Unknown(tokens.since(from).to_owned()));
            }
        }
    }
    rule
}

fn set(tokens: &mut Tokens<'_>, is_map: bool) -> ReadResult<Set> {
    let mut set = Set {
        name: name(tokens, "a set's name")?,
        key: Vec::new(),
        holds: SetData::Keys,
        flags: Vec::new(),
        timeout: None,
        size: None,
        comment: None,
        statements: Vec::new(),
        elements: Vec::new(),
    };
    open(tokens)?;
    loop {
        tokens.skip_ends();
        if tokens.take("}") {
            set.name_counters();
            let complete = !set.key.is_empty() && is_map != (set.holds == SetData::Keys);
            return if complete { Ok(set) } else { expected(tokens, "a set with its type") };
        }
        if tokens.take(";") {
            continue;
        }
        let line = tokens.line();
        if statement::is_of_element(tokens) {
            let read = statement::read(tokens);
            let wrong = || NftReadError::new(line, format!("a statement of the set {} is not understood", set.name));
            set.statements.push(read.ok_or_else(wrong)?);
            continue;
        }
        match tokens.word() {
            Some("type") => (set.key, set.holds) = types(tokens, is_map, line, named)?,
            Some("typeof") => (set.key, set.holds) = types(tokens, is_map, line, of_expression)?,
            Some("flags") => set.flags = words(tokens),
            Some("size") => set.size = tokens.word().and_then(|word| word.parse().ok()),
            Some("timeout") => set.timeout = tokens.word().and_then(elements::milliseconds),
            Some("comment") => set.comment = tokens.word().map(str::to_owned),
            // These do not affect membership.
            Some("gc-interval" | "policy" | "auto-merge") => drop(tokens.rest_of_line()),
            Some("elements") => {
                tokens.take("=");
                let read = elements::read(tokens);
                set.elements = read.ok_or_else(|| {
                    NftReadError::new(tokens.line(), format!("an element of the set {} is not understood", set.name))
                })?;
            }
            Some(word) => {
                return Err(NftReadError::new(line, format!("{word:?} is not part of a set")));
            }
            None => return expected(tokens, "something of a set"),
        }
    }
}

fn named(tokens: &mut Tokens<'_>) -> Option<DeclaredType> {
    tokens.word().map(|name| DeclaredType::Named(name.to_owned()))
}

fn of_expression(tokens: &mut Tokens<'_>) -> Option<DeclaredType> {
    expression::one(tokens).map(DeclaredType::Of)
}

/// Reads `ipv4_addr . inet_service : verdict`.
fn types(
    tokens: &mut Tokens<'_>,
    is_map: bool,
    line: usize,
    one: fn(&mut Tokens<'_>) -> Option<DeclaredType>,
) -> ReadResult<(Vec<DeclaredType>, SetData)> {
    let concatenated = |tokens: &mut Tokens<'_>| {
        let mut all = vec![one(tokens)?];
        while tokens.take(".") {
            all.push(one(tokens)?);
        }
        Some(all)
    };
    let wrong = || NftReadError::new(line, "unknown type");
    let key = concatenated(tokens).ok_or_else(wrong)?;
    if !is_map {
        return Ok((key, SetData::Keys));
    }
    if !tokens.take(":") {
        return Err(wrong());
    }
    tokens.take("interval");
    if tokens.take("verdict") {
        return Ok((key, SetData::Verdicts));
    }
    if tokens.take("counter") {
        return Ok((key, SetData::Counters));
    }
    Ok((key, SetData::Data(concatenated(tokens).ok_or_else(wrong)?)))
}
