use std::fmt;

use super::expression::BINARIES;
use super::statement::{LIMIT_UNITS, NAT_KINDS, RELATIONS, SET_OPERATIONS};
use super::{
    Binary, Chain, DeclaredType, Element, ElementKey, ElementValue, Expr, NamedCounter, NatKind, NftVerdict, Relation,
    Rule, Ruleset, Set, SetData, Statement, Table,
};
use crate::names;
use crate::rules::ChainPolicy;

impl fmt::Display for NftVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NftVerdict::Accept => f.write_str("accept"),
            NftVerdict::Drop => f.write_str("drop"),
            NftVerdict::Return => f.write_str("return"),
            NftVerdict::Continue => f.write_str("continue"),
            NftVerdict::Jump(chain) => write!(f, "jump {chain}"),
            NftVerdict::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, all: &[T], between: &str) -> fmt::Result {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            f.write_str(between)?;
        }
        write!(f, "{one}")?;
    }
    Ok(())
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::name(&BINARIES, self))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |f: &mut fmt::Formatter<'_>, expr: &Expr| match expr {
            Expr::Binary(..) => write!(f, "({expr})"),
            _ => write!(f, "{expr}"),
        };
        match self {
            Expr::Word(word) => f.write_str(word),
            Expr::Prefix(address, length) => write!(f, "{address}/{length}"),
            Expr::Range(first, last) => write!(f, "{first}-{last}"),
            Expr::Flags(flags) => joined(f, flags, ","),
            Expr::Concat(parts) => joined(f, parts, " . "),
            Expr::Elements(elements) => {
                f.write_str("{ ")?;
                joined(f, elements, ", ")?;
                f.write_str(" }")
            }
            Expr::SetRef(name) => write!(f, "@{name}"),
            Expr::Payload { protocol, field } => write!(f, "{protocol} {field}"),
            Expr::Raw { base, offset, length } => write!(f, "@{base},{offset},{length}"),
            Expr::Meta(key) if matches!(key.as_str(), "iif" | "oif" | "iifname" | "oifname") => f.write_str(key),
            Expr::Meta(key) => write!(f, "meta {key}"),
            Expr::Ct { direction: Some(direction), key } => write!(f, "ct {direction} {key}"),
            Expr::Ct { direction: None, key } => write!(f, "ct {key}"),
            Expr::Socket(key) => write!(f, "socket {key}"),
            Expr::Fib { flags, result } => write!(f, "fib {} {result}", flags.join(" . ")),
            Expr::Numgen { random, modulus, offset } => {
                write!(f, "numgen {} mod {modulus}", if *random { "random" } else { "inc" })?;
                if *offset == 0 { Ok(()) } else { write!(f, " offset {offset}") }
            }
            Expr::Hash { key, modulus, seed, offset } => {
                match key {
                    Some(key) => write!(f, "jhash {key} mod {modulus}")?,
                    None => write!(f, "symhash mod {modulus}")?,
                }
                if let Some(seed) = seed {
                    write!(f, " seed 0x{seed:x}")?;
                }
                if *offset == 0 { Ok(()) } else { write!(f, " offset {offset}") }
            }
            Expr::Binary(operation, left, right) => {
                inner(f, left)?;
                write!(f, " {operation} ")?;
                inner(f, right)
            }
            Expr::Map { key, map } => write!(f, "{key} map {map}"),
            Expr::Unknown(text) => f.write_str(text),
        }
    }
}

/// A time, printed in seconds (and milliseconds).
struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (seconds, 0) => write!(f, "{seconds}s"),
            (seconds, rest) => write!(f, "{seconds}s{rest}ms"),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            ElementKey::Any => f.write_str("*")?,
            ElementKey::Parts(parts) => joined(f, parts, " . ")?,
        }
        self.statements.iter().try_for_each(|statement| write!(f, " {statement}"))?;
        if let Some(timeout) = self.timeout {
            write!(f, " timeout {}", Milliseconds(timeout))?;
        }
        if let Some(expires) = self.expires {
            write!(f, " expires {}", Milliseconds(expires))?;
        }
        match &self.value {
            ElementValue::None => Ok(()),
            ElementValue::Verdict(verdict) => write!(f, " : {verdict}"),
            ElementValue::Counter(name) => write!(f, " : \"{name}\""),
            ElementValue::Data(parts) => {
                f.write_str(" : ")?;
                joined(f, parts, " . ")
            }
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Relation::Implicit => Ok(()),
            operator => write!(f, "{} ", names::name(&RELATIONS, operator)),
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Match { left, relation, right } => write!(f, "{left} {relation}{right}"),
            Statement::Verdict(verdict) => write!(f, "{verdict}"),
            Statement::VerdictMap { key, map } => write!(f, "{key} vmap {map}"),
            Statement::CountBy { key, map } => write!(f, "counter name {key} map {map}"),
            Statement::Set { what, value } => write!(f, "{what} set {value}"),
            Statement::Element { operation, set, key, data, timeout, statements } => {
                let operation = names::name(&SET_OPERATIONS, operation);
                write!(f, "{operation} @{set} {{ {key}")?;
                if let Some(timeout) = timeout {
                    write!(f, " timeout {}", Milliseconds(*timeout))?;
                }
                statements.iter().try_for_each(|statement| write!(f, " {statement}"))?;
                if let Some(data) = data {
                    write!(f, " : {data}")?;
                }
                f.write_str(" }")
            }
            Statement::Nat { kind, family, address, port, flags } => {
                nat(f, *kind, family.as_deref(), address.as_ref(), port.as_ref(), flags)
            }
            Statement::Reject(None) => f.write_str("reject"),
            Statement::Reject(Some((protocol, name))) => write!(f, "reject with {protocol} {name}"),
            Statement::Notrack => f.write_str("notrack"),
            Statement::Limit { rate, per, burst, over } => {
                let unit = names::name(&LIMIT_UNITS, per);
                write!(f, "limit rate {}{rate}/{unit} burst {burst} packets", if *over { "over " } else { "" })
            }
            Statement::ConnectionCount { count, over } => {
                write!(f, "ct count {}{count}", if *over { "over " } else { "" })
            }
            Statement::NoEffect(text) | Statement::UnknownMatch { text, .. } | Statement::Unknown(text) => {
                f.write_str(text)
            }
        }
    }
}

fn nat(
    f: &mut fmt::Formatter<'_>,
    kind: NatKind,
    family: Option<&str>,
    address: Option<&Expr>,
    port: Option<&Expr>,
    flags: &[String],
) -> fmt::Result {
    f.write_str(names::name(&NAT_KINDS, &kind))?;
    if let Some(family) = family {
        write!(f, " {family}")?;
    }
    match (address, port) {
        (None, None) => {}
        (None, Some(port)) => write!(f, " to :{port}")?,
        (Some(address), None) => write!(f, " to {address}")?,
        (Some(address), Some(port)) if address.to_string().contains(':') => write!(f, " to [{address}]:{port}")?,
        (Some(address), Some(port)) => write!(f, " to {address}:{port}")?,
    }
    if flags.is_empty() { Ok(()) } else { write!(f, " {}", flags.join(",")) }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(f, &self.statements, " ")?;
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}

impl fmt::Display for DeclaredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclaredType::Named(name) => f.write_str(name),
            DeclaredType::Of(expr) => write!(f, "{expr}"),
        }
    }
}

impl fmt::Display for NamedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tcounter {} {{\n\t\tpackets {} bytes {}\n\t}}", self.name, self.packets, self.bytes)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.holds == SetData::Keys { "set" } else { "map" };
        let word = if self.key.iter().any(|part| matches!(part, DeclaredType::Of(_))) { "typeof" } else { "type" };
        write!(f, "\t{kind} {} {{\n\t\t{word} ", self.name)?;
        joined(f, &self.key, " . ")?;
        match &self.holds {
            SetData::Keys => {}
            SetData::Verdicts => f.write_str(" : verdict")?,
            SetData::Counters => f.write_str(" : counter")?,
            SetData::Data(parts) => {
                f.write_str(" : ")?;
                joined(f, parts, " . ")?;
            }
        }
        f.write_str("\n")?;
        if let Some(size) = self.size {
            writeln!(f, "\t\tsize {size}")?;
        }
        if !self.flags.is_empty() {
            writeln!(f, "\t\tflags {}", self.flags.join(","))?;
        }
        if let Some(timeout) = self.timeout {
            writeln!(f, "\t\ttimeout {}", Milliseconds(timeout))?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        self.statements.iter().try_for_each(|statement| writeln!(f, "\t\t{statement}"))?;
        if !self.elements.is_empty() {
            f.write_str("\t\telements = { ")?;
            joined(f, &self.elements, ",\n\t\t\t     ")?;
            f.write_str(" }\n")?;
        }
        f.write_str("\t}\n")
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        if let Some(base) = &self.base {
            write!(f, "\t\ttype {} hook {}", base.kind, base.hook)?;
            match base.devices.as_deref().unwrap_or_default() {
                [] => {}
                [one] => write!(f, " device \"{one}\"")?,
                all => write!(f, " devices = {{ {} }}", all.join(", "))?,
            }
            let policy = if base.policy == ChainPolicy::Drop { "drop" } else { "accept" };
            writeln!(f, " priority {}; policy {policy};", base.priority)?;
        }
        for rule in &self.rules {
            writeln!(f, "\t\t{rule}")?;
        }
        f.write_str("\t}\n")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{", self.family, self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\tcomment \"{comment}\"")?;
        }
        if !self.flags.is_empty() {
            writeln!(f, "\tflags {}", self.flags.join(","))?;
        }
        let mut first = self.comment.is_none() && self.flags.is_empty();
        let counters = self.counters.iter().map(ToString::to_string);
        let parts = counters.chain(self.sets.iter().map(ToString::to_string));
        for part in parts.chain(self.chains.iter().map(ToString::to_string)) {
            if !first {
                f.write_str("\n")?;
            }
            first = false;
            f.write_str(&part)?;
        }
        f.write_str("}\n")
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(f, &self.tables, "\n")
    }
}
