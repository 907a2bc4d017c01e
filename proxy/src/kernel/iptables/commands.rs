use std::process::Output;
use std::time::Duration;

use super::references::ReferenceCounts;
use super::{CommandCounters, Iptables, IptablesError, LegacyTables, RuleRefusal, Table};
use crate::config::Variant;
use crate::kernel::netlink::NetlinkError;
use crate::kernel::{capabilities, command};
use crate::model::Family;
use crate::ruleset::{RestoreLine, Transaction};

/// In seconds.
pub(super) const LOCK_WAIT: &str = "5";
/// The time limit of a dump: 160,000 rules take a few seconds on a busy node.
const READ: Duration = Duration::from_secs(60);
/// The time limit of a restore, plus [`RESTORE_LINE`] per line.
const RESTORE: Duration = Duration::from_secs(30);
/// The extra time per line: `iptables-nft-restore` 1.8.9 took over five minutes for 270,000 lines.
const RESTORE_LINE: Duration = Duration::from_millis(5);
/// A pipe's capacity (pipe(7)).
const PIECE: usize = 64 << 10;

pub struct Commands {
    family: Family,
    /// Whether the commands are iptables-nft, from their version text.
    is_nft: bool,
    references: ReferenceCounts,
    command: &'static str,
    save: String,
    restore: String,
    random_fully: bool,
}

impl Commands {
    pub fn find(family: Family, variant: Variant) -> Result<Commands, IptablesError> {
        let name = match (family, variant) {
            (Family::V4, Variant::Auto) => "iptables",
            (Family::V4, Variant::Nft) => "iptables-nft",
            (Family::V4, Variant::Legacy) => "iptables-legacy",
            (Family::V6, Variant::Auto) => "ip6tables",
            (Family::V6, Variant::Nft) => "ip6tables-nft",
            (Family::V6, Variant::Legacy) => "ip6tables-legacy",
        };
        let output = start(name, &["--version"], None, READ)?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Commands {
            family,
            is_nft: version.contains("nf_tables"),
            references: ReferenceCounts::default(),
            command: name,
            save: format!("{name}-save"),
            restore: format!("{name}-restore"),
            random_fully: version_of(&version).is_none_or(|v| v >= (1, 6, 2)),
        })
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn is_nft(&self) -> bool {
        self.is_nft
    }

    pub fn counters(&self) -> CommandCounters {
        CommandCounters::new(self.command, &self.save)
    }
}

impl Iptables for Commands {
    fn save(&mut self, _: &[Table]) -> Result<String, IptablesError> {
        let output = read(&self.save, &[])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if is_whole(&text) { Ok(text) } else { Err(IptablesError::NoDump { command: self.save.clone() }) }
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        let lines = u32::try_from(change.lines().count()).unwrap_or(u32::MAX);
        let limit = RESTORE + RESTORE_LINE.saturating_mul(lines);
        let mut pieces = change.pieces(PIECE);
        let output = start(&self.restore, &["-w", LOCK_WAIT, "--noflush"], Some(&mut pieces), limit)?;
        check(&self.restore, &output, Some(change))
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        if self.is_nft {
            let ask = |chain: &&str| self.references.read(self.family, table, chain).map_err(IptablesError::from);
            return chains.iter().map(ask).collect();
        }
        let failed = |source| NetlinkError::new(format!("read the legacy table {table} of {}", self.family), source);
        let uses = LegacyTables::open(self.family).and_then(|legacy| legacy.reference_counts(table)).map_err(failed)?;
        Ok(chains.iter().map(|chain| uses.get(*chain).copied()).collect())
    }

    fn random_fully(&self) -> bool {
        self.random_fully
    }
}

pub(super) fn read(program: &str, arguments: &[&str]) -> Result<Output, IptablesError> {
    let output = start(program, arguments, None, READ)?;
    check(&format!("{program} {}", arguments.join(" ")), &output, None)?;
    Ok(output)
}

fn start(
    program: &str,
    arguments: &[&str],
    input: Option<command::InputPieces<'_>>,
    limit: Duration,
) -> Result<Output, IptablesError> {
    let command = || program.to_owned();
    command::run_fed(program, arguments, input, limit).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => IptablesError::Missing { command: command() },
        std::io::ErrorKind::TimedOut => IptablesError::TimedOut { command: command(), limit },
        _ => IptablesError::Run { command: command(), source },
    })
}

fn check(command: &str, output: &Output, input: Option<&Transaction>) -> Result<(), IptablesError> {
    if output.status.success() {
        return Ok(());
    }
    let mut message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let complaint = input.and_then(|input| complained_of(&message, input));
    let refusal =
        complaint.and_then(|(table, line)| RuleRefusal::of_line(table, &line.to_string(), message.replace('\n', "; ")));
    if let Some((_, line)) = complaint {
        message = format!("{message} [{line}]");
    }
    let error = failed(command.to_owned(), output.status.code().unwrap_or(-1), &message);
    Err(match refusal {
        Some(refusal) if error.is_refusal() => IptablesError::Refused(vec![refusal]),
        _ => error,
    })
}

fn failed(command: String, status: i32, message: &str) -> IptablesError {
    // Commands report missing rights only in words; iptables-legacy-restore only says that it cannot begin.
    let cannot_begin = message.contains("unable to initialize table") && capabilities::lacking(true).is_some();
    if cannot_begin || message.contains("Permission denied") || message.contains("Operation not permitted") {
        let command = command.split(' ').next().unwrap_or_default().to_owned();
        return IptablesError::NotPermitted { command };
    }
    if message.contains("Message too long") {
        return IptablesError::TooLarge { command };
    }
    IptablesError::Failed { command, status, message: message.replace('\n', "; ") }
}

fn is_whole(text: &str) -> bool {
    let mut open = false;
    let balanced = text.lines().all(|line| match (line.starts_with('*'), line == "COMMIT") {
        (true, _) => !std::mem::replace(&mut open, true),
        (_, true) => std::mem::replace(&mut open, false),
        _ => true,
    });
    balanced && !open
}

/// Returns the input's line that a message such as `iptables-restore: line 7 failed` names.
fn complained_of<'a>(message: &str, input: &'a Transaction) -> Option<(Table, RestoreLine<'a>)> {
    // Another form of the message is `Error occurred at line: 7`.
    let after = message.split("line").nth(1)?.trim_start_matches([':', ' ']);
    let number: usize = after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()?;
    let mut of = None;
    let mut lines = input.lines().inspect(|line| {
        if let RestoreLine::Table(table) = line {
            of = Some(*table);
        }
    });
    let line = lines.nth(number.checked_sub(1)?)?;
    drop(lines);
    Some((of?, line))
}

fn version_of(text: &str) -> Option<(u32, u32, u32)> {
    let number = text.split(" v").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::Rule;

    #[test]
    fn versions_are_read() {
        assert_eq!(version_of("iptables v1.8.9 (nf_tables)"), Some((1, 8, 9)));
        assert_eq!(version_of("ip6tables v1.6 (legacy)"), Some((1, 6, 0)));
        assert_eq!(version_of("what"), None);
    }

    #[test]
    fn a_dump_is_told_from_garbage() {
        let dump = "# Generated\n*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j X\nCOMMIT\n# Completed\n";
        assert!(is_whole(dump) && is_whole("") && is_whole(&format!("{dump}{}", dump.replace("nat", "raw"))));
        let cut_short = dump.replace("COMMIT\n", "");
        for text in [&cut_short, &format!("{cut_short}{dump}"), "*nat\n:KUBE-? - [x]\nCOMMIT\n*nat\n", "COMMIT\n"] {
            assert!(!is_whole(text), "{text}");
        }
    }

    #[test]
    fn a_failure_shows_the_line() {
        let mut change = Transaction::default();
        change.table(Table::Nat).append.push(("X".into(), Rule::new().jump("NOWHERE")));
        let shown = |message: &str| complained_of(message, &change).map(|(table, line)| (table, line.to_string()));
        let expected = Some((Table::Nat, "-A X -j NOWHERE".to_owned()));
        assert_eq!(shown("iptables-restore: line 2 failed"), expected);
        assert_eq!(shown("Error occurred at line: 2"), expected);
        assert_eq!(shown("no number"), None);
        let refusal = |message: &str| {
            complained_of(message, &change)
                .and_then(|(table, line)| RuleRefusal::of_line(table, &line.to_string(), String::new()))
        };
        let refused = refusal("iptables-restore: line 2 failed").unwrap();
        assert_eq!((&refused.chain[..], refused.rule.as_deref()), ("X", Some("-j NOWHERE")));
        assert_eq!(refusal("iptables-restore: line 3 failed"), None, "COMMIT");
    }
}
