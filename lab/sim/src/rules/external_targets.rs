//! Targets that involve other programs or change IP sets.

use std::fmt;

use super::error::{ParseResult, Problem};
use super::options::{self, TextOption};
use super::tokens::OptionReader;

/// A TPROXY, NFQUEUE or SYNPROXY target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ExternalTarget {
    pub name: &'static str,
    pub options: Vec<TextOption>,
}

const TARGETS: [(&str, &[(&str, bool)]); 3] = [
    ("TPROXY", &[("--on-port", true), ("--on-ip", true), ("--tproxy-mark", true)]),
    (
        "NFQUEUE",
        &[("--queue-num", true), ("--queue-balance", true), ("--queue-bypass", false), ("--queue-cpu-fanout", false)],
    ),
    (
        "SYNPROXY",
        &[("--sack-perm", false), ("--timestamp", false), ("--wscale", true), ("--mss", true), ("--ecn", false)],
    ),
];

fn plain(options: &[TextOption], of: &str) -> ParseResult<()> {
    match options.iter().find(|option| option.not) {
        Some(option) => Err(Problem::Impossible(format!("{} of {of} cannot be inverted by !", option.name))),
        None => Ok(()),
    }
}

impl ExternalTarget {
    pub(super) fn read(name: &str, words: &mut OptionReader<'_>) -> ParseResult<Option<ExternalTarget>> {
        let Some((name, known)) = TARGETS.iter().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let options = options::read(words, known)?;
        plain(&options, name)?;
        Ok(Some(ExternalTarget { name, options }))
    }

    fn value(&self, option: &str) -> Option<&str> {
        self.options.iter().find(|known| known.name == option)?.value.as_deref()
    }

    /// Describes the effect as a sentence's predicate.
    #[must_use]
    pub fn effect(&self) -> String {
        match self.name {
            "TPROXY" => {
                let port = self.value("--on-port").unwrap_or("0");
                format!("hands the packet to the program that listens at port {port}")
            }
            "NFQUEUE" => match self.value("--queue-balance") {
                Some(queues) => format!("leaves the decision to the programs that read queues {queues}"),
                None => {
                    let queue = self.value("--queue-num").unwrap_or("0");
                    format!("leaves the decision to the program that reads queue {queue}")
                }
            },
            _ => "answers in the server's place and opens its own connection to it, which is not modelled".to_owned(),
        }
    }
}

impl fmt::Display for ExternalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        options::print(&self.options, f)
    }
}

/// `SET` (net/netfilter/xt_set.c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTarget {
    /// Options; `--add-set`, `--del-set`, `--map-set` have the value `SET SIDES`.
    pub options: Vec<TextOption>,
}

const SET: [(&str, u8); 8] = [
    ("--add-set", 2),
    ("--del-set", 2),
    ("--map-set", 2),
    ("--exist", 0),
    ("--timeout", 1),
    ("--map-mark", 0),
    ("--map-prio", 0),
    ("--map-queue", 0),
];

impl SetTarget {
    pub(super) fn read(words: &mut OptionReader<'_>) -> ParseResult<SetTarget> {
        let mut this = SetTarget { options: Vec::new() };
        while let Some(option) = words.option(|word| SET.iter().any(|(name, _)| *name == word)) {
            let values = SET.iter().find(|(name, _)| *name == option).map_or(0, |(_, values)| *values);
            let mut value = Vec::new();
            for _ in 0..values {
                value.push(words.value()?);
            }
            let value = (values > 0).then(|| value.join(" "));
            this.options.push(TextOption { not: words.negated(), name: option.to_owned(), value });
        }
        plain(&this.options, "SET")?;
        if this.options.iter().any(|option| option.name.ends_with("-set")) {
            return Ok(this);
        }
        Err(Problem::Missing { of: "SET".to_owned(), what: "--add-set, --del-set or --map-set" })
    }

    /// Returns the changed sets.
    pub fn changes(&self) -> impl Iterator<Item = &str> {
        let changes = self.options.iter().filter(|option| matches!(option.name.as_str(), "--add-set" | "--del-set"));
        changes.filter_map(|option| option.value.as_deref()?.split(' ').next())
    }

    /// Whether elements set the packet's mark, priority or queue.
    #[must_use]
    pub fn maps(&self) -> bool {
        self.options.iter().any(|option| option.name == "--map-set")
    }
}

impl fmt::Display for SetTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SET")?;
        self.options.iter().try_for_each(|option| {
            write!(f, " {}", option.name)?;
            option.value.as_ref().map_or(Ok(()), |value| write!(f, " {value}"))
        })
    }
}
