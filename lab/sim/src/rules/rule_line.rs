use super::error::{ParseResult, Problem};
use super::matches::Match;
use super::target::RuleTarget;
use super::tokens::{OptionReader, bare};
use super::{Family, TableName};
use super::{Rule, RuleHeader, Test};
use crate::protocol::Protocol;

/// Returns the match to which options without `-m` belong.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownPolicy {
    Refused,
    Kept,
}

impl UnknownPolicy {
    /// Whether to keep an unreadable match or target as text.
    fn keeps(self, problem: &Problem) -> bool {
        self == UnknownPolicy::Kept && !matches!(problem, Problem::NoValue(_) | Problem::Line(_))
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    !name.starts_with('-') && !name.is_empty() && name.chars().all(letter)
}

enum OpenExtension {
    Nothing,
    /// A match's name, and its options' position.
    Match(String, usize),
    /// The target name's position.
    Target(usize),
}

struct RuleReader<'w, 'a> {
    words: &'w mut OptionReader<'a>,
    family: Family,
    table: TableName,
    unknown: UnknownPolicy,
    rule: Rule,
    open: OpenExtension,
    last: String,
}

pub(crate) fn read(
    words: &mut OptionReader<'_>,
    family: Family,
    table: TableName,
    unknown: UnknownPolicy,
) -> ParseResult<Rule> {
    let rule =
        Rule { line: 0, counters: None, header: RuleHeader::default(), matches: Vec::new(), target: RuleTarget::None };
    let mut reader =
        RuleReader { words, family, table, unknown, rule, open: OpenExtension::Nothing, last: "a rule".to_owned() };
    while reader.part()? {}
    Ok(reader.rule)
}

impl RuleReader<'_, '_> {
    fn part(&mut self) -> ParseResult<bool> {
        let Some(word) = self.words.peek() else {
            return Ok(false);
        };
        if self.header()? {
            self.open = OpenExtension::Nothing;
        } else if let Some(option) = self.words.option(|word| matches!(word, "-j" | "--jump" | "-g" | "--goto")) {
            self.words.plain()?;
            self.target(matches!(option, "-g" | "--goto"))?;
        } else if self.words.option(|word| matches!(word, "-m" | "--match")).is_some() {
            self.words.plain()?;
            let name = self.words.value()?;
            self.one_match(name)?;
            self.last = format!("match {name}");
        } else if let Some(name) = implied(self.rule.header.protocol)
            && !self.rule.matches.iter().any(|known| known.name() == name)
        {
            self.implied_match(name, word)?;
        } else {
            self.option_is_unknown(word)?;
        }
        Ok(true)
    }

    /// Reads an option before `-m`. Keeps a protocol's unknown name as an unknown match.
    fn header(&mut self) -> ParseResult<bool> {
        let problem = match self.rule.header.read(self.words) {
            Err(problem) => problem,
            read => return read,
        };
        let Problem::Value { option, value, .. } = &problem else { return Err(problem) };
        if !self.unknown.keeps(&problem) || !matches!(option.as_str(), "-p" | "--protocol" | "--proto") {
            return Err(problem);
        }
        let not = if self.words.negated() { "! " } else { "" };
        self.rule.matches.push(Match::Unknown { name: String::new(), options: format!("{not}-p {}", bare(value)) });
        Ok(true)
    }

    /// Reads options of the implied match, or of the preceding one.
    fn implied_match(&mut self, name: &str, option: &str) -> ParseResult<()> {
        let place = self.words.place();
        let read = Match::read(name, self.words, self.family, &self.rule.header);
        let nothing = self.words.place() == place;
        match read {
            Ok(_) if nothing => return self.option_is_unknown(option),
            Ok(one) => self.rule.matches.push(one),
            Err(problem) if !self.unknown.keeps(&problem) => return Err(problem),
            Err(_) if nothing && !matches!(self.open, OpenExtension::Nothing) => return self.option_is_unknown(option),
            Err(_) => self.keep_match(name, place)?,
        }
        self.open = OpenExtension::Match(name.to_owned(), place);
        Ok(())
    }

    fn one_match(&mut self, name: &str) -> ParseResult<()> {
        let place = self.words.place();
        match Match::read(name, self.words, self.family, &self.rule.header) {
            Ok(one) => self.rule.matches.push(one),
            Err(problem) if self.unknown.keeps(&problem) => self.keep_match(name, place)?,
            Err(problem) => return Err(problem),
        }
        self.open = OpenExtension::Match(name.to_owned(), place);
        Ok(())
    }

    fn keep_match(&mut self, name: &str, place: usize) -> ParseResult<()> {
        if !is_name(name) {
            return Err(Problem::UnknownMatch(name.to_owned()));
        }
        self.words.back_to(place);
        let options = self.words.up_to_next_part();
        self.rule.matches.push(Match::Unknown { name: name.to_owned(), options });
        Ok(())
    }

    fn target(&mut self, goto: bool) -> ParseResult<()> {
        if self.rule.target != RuleTarget::None {
            return Err(Problem::Impossible("a rule has one target".to_owned()));
        }
        let place = self.words.place();
        let name = self.words.value()?;
        if goto {
            self.rule.target = RuleTarget::Goto(name.to_owned());
            self.open = OpenExtension::Nothing;
        } else {
            match RuleTarget::read(name, self.words, self.family, self.table) {
                Ok(found) => self.rule.target = found.unwrap_or_else(|| RuleTarget::Jump(name.to_owned())),
                Err(problem) if self.unknown.keeps(&problem) => self.keep_target(place)?,
                Err(problem) => return Err(problem),
            }
            self.open = OpenExtension::Target(place);
        }
        self.last = words_name(&self.rule.target);
        Ok(())
    }

    fn keep_target(&mut self, place: usize) -> ParseResult<()> {
        self.words.back_to(place);
        let name = self.words.value()?.to_owned();
        if !is_name(&name) {
            return Err(Problem::UnknownTarget(name));
        }
        self.rule.target = RuleTarget::Unknown { name, options: self.words.up_to_next_part() };
        Ok(())
    }

    /// Keeps the preceding match or target as text, or fails.
    fn option_is_unknown(&mut self, option: &str) -> ParseResult<()> {
        let problem = Problem::UnknownOption { of: self.last.clone(), option: option.to_owned() };
        match std::mem::replace(&mut self.open, OpenExtension::Nothing) {
            OpenExtension::Match(name, place) if self.unknown.keeps(&problem) => {
                self.rule.matches.pop();
                self.keep_match(&name, place)
            }
            OpenExtension::Target(place) if self.unknown.keeps(&problem) => self.keep_target(place),
            _ => Err(problem),
        }
    }
}

fn words_name(target: &RuleTarget) -> String {
    let text = target.to_string();
    format!("target {}", text.trim_start().split(' ').nth(1).unwrap_or("none"))
}
