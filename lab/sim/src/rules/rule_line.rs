//! One rule's line, after its chain.

use super::error::{Part, Problem};
use super::matches::Match;
use super::target::Target;
use super::tokens::Words;
use super::{Family, TableName};
use super::{Header, Rule, Test};
use crate::protocol::Protocol;

/// The match that `-p` brings along when options follow it without a `-m` of their own.
fn implied(protocol: Option<Test<Protocol>>) -> Option<&'static str> {
    let protocol = protocol.filter(|test| !test.not)?;
    Some(match protocol.is {
        Protocol::TCP => "tcp",
        Protocol::UDP => "udp",
        Protocol::SCTP => "sctp",
        Protocol::ICMP => "icmp",
        Protocol::ICMPV6 => "icmp6",
        _ => return None,
    })
}

/// What `-j` or `-g` leads to. A chain may have any name, a target's included only if it is not one.
fn target(words: &mut Words<'_>, goto: bool, family: Family, table: TableName) -> Part<Target> {
    words.plain()?;
    let name = words.value()?;
    if goto {
        return Ok(Target::Goto(name.to_owned()));
    }
    let found = Target::read(name, words, family, table)?;
    Ok(found.unwrap_or_else(|| Target::Jump(name.to_owned())))
}

/// Reads a rule. Jumps are not resolved: the chain may be declared later.
pub(crate) fn read(words: &mut Words<'_>, family: Family, table: TableName) -> Part<Rule> {
    let mut rule =
        Rule { line: 0, counters: None, header: Header::default(), matches: Vec::new(), target: Target::None };
    let mut last = "a rule".to_owned();
    while let Some(word) = words.peek() {
        if rule.header.read(words)? {
            continue;
        }
        if let Some(option) = words.option(|word| matches!(word, "-j" | "--jump" | "-g" | "--goto")) {
            if rule.target != Target::None {
                return Err(Problem::Impossible("a rule has one target".to_owned()));
            }
            rule.target = target(words, matches!(option, "-g" | "--goto"), family, table)?;
            last = words_name(&rule.target);
        } else if words.option(|word| matches!(word, "-m" | "--match")).is_some() {
            words.plain()?;
            let name = words.value()?;
            rule.matches.push(Match::read(name, words, family, &rule.header)?);
            last = format!("match {name}");
        } else if let Some(name) = implied(rule.header.protocol)
            && !rule.matches.iter().any(|known| known.name() == name)
        {
            let before = rule.matches.len();
            rule.matches.push(Match::read(name, words, family, &rule.header)?);
            if words.peek() == Some(word) && rule.matches.len() > before {
                return Err(Problem::UnknownOption { of: last, option: word.to_owned() });
            }
        } else {
            return Err(Problem::UnknownOption { of: last, option: word.to_owned() });
        }
    }
    Ok(rule)
}

fn words_name(target: &Target) -> String {
    let text = target.to_string();
    format!("target {}", text.trim_start().split(' ').nth(1).unwrap_or("none"))
}
