//! The real commands: single rules through the `iptables` crate, dump and restore on our own, as the crate has none.

use std::process::Output;

use iptables::IPTables;

use super::{Counters, Iptables, IptablesError, Table};
use crate::config::Variant;
use crate::kernel::command;
use crate::kernel::nftables::Questions;
use crate::model::Family;

/// Seconds that a command waits for the lock that all legacy iptables commands share.
pub(super) const LOCK_WAIT: &str = "5";

/// The commands of one family and variant.
pub struct Commands {
    family: Family,
    /// The nft variant, by the command's own word; legacy says `(legacy)`, and old versions nothing.
    is_nft: bool,
    nftables: Questions,
    single: IPTables,
    save: String,
    restore: String,
    random_fully: bool,
}

impl Commands {
    /// Finds the commands and asks them for their version.
    ///
    /// # Errors
    /// When they are not installed.
    pub fn find(family: Family, variant: Variant) -> Result<Commands, IptablesError> {
        let name = match (family, variant) {
            (Family::V4, Variant::Auto) => "iptables",
            (Family::V4, Variant::Nft) => "iptables-nft",
            (Family::V4, Variant::Legacy) => "iptables-legacy",
            (Family::V6, Variant::Auto) => "ip6tables",
            (Family::V6, Variant::Nft) => "ip6tables-nft",
            (Family::V6, Variant::Legacy) => "ip6tables-legacy",
        };
        let output = start(name, &["--version"], None)?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Commands {
            family,
            is_nft: version.contains("nf_tables"),
            nftables: Questions::default(),
            // Both options are there since 1.4.20, far below what the nft variant began with.
            single: IPTables { cmd: name, has_check: true, has_wait: true, is_numeric: true },
            save: format!("{name}-save"),
            restore: format!("{name}-restore"),
            random_fully: version_of(&version).is_none_or(|v| v >= (1, 6, 2)),
        })
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether these are the nft variant.
    pub fn is_nft(&self) -> bool {
        self.is_nft
    }

    /// The counters of the same tables.
    pub fn counters(&self) -> Counters {
        Counters::new(self.single.cmd, &self.save)
    }

    fn one(&self, what: &str, result: Result<(), Box<dyn std::error::Error>>) -> Result<(), IptablesError> {
        result.map_err(|error| failed(format!("{} {what}", self.single.cmd), 1, &error.to_string()))
    }
}

impl Iptables for Commands {
    fn save(&mut self, table: Table) -> Result<String, IptablesError> {
        let output = start(&self.save, &["-t", table.as_str()], None)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        check(&format!("{} -t {table}", self.save), &output, None).map(|()| text)
    }

    fn restore(&mut self, input: &str) -> Result<(), IptablesError> {
        let output = start(&self.restore, &["-w", LOCK_WAIT, "--noflush"], Some(input))?;
        check(&self.restore, &output, Some(input))
    }

    fn new_chain(&mut self, table: Table, chain: &str) -> Result<(), IptablesError> {
        self.one(&format!("-t {table} -N {chain}"), self.single.new_chain(table.as_str(), chain))
    }

    fn insert_first(&mut self, table: Table, chain: &str, rule: &str) -> Result<(), IptablesError> {
        self.one(&format!("-t {table} -I {chain} {rule}"), self.single.insert(table.as_str(), chain, rule, 1))
    }

    fn delete_all(&mut self, table: Table, chain: &str, rule: &str) -> Result<(), IptablesError> {
        self.one(&format!("-t {table} -D {chain} {rule}"), self.single.delete_all(table.as_str(), chain, rule))
    }

    fn chain_exists(&mut self, table: Table, chain: &str) -> Result<bool, IptablesError> {
        if self.is_nft {
            return Ok(self.nftables.chain_exists(self.family, table.as_str(), chain)?);
        }
        let answer = self.single.chain_exists(table.as_str(), chain);
        answer.map_err(|error| failed(format!("{} -t {table} -L {chain}", self.single.cmd), 1, &error.to_string()))
    }

    fn random_fully(&self) -> bool {
        self.random_fully
    }
}

pub(super) fn start(program: &str, arguments: &[&str], input: Option<&str>) -> Result<Output, IptablesError> {
    command::run(program, arguments, input).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => IptablesError::Missing { command: program.to_owned() },
        _ => IptablesError::Run { command: program.to_owned(), source },
    })
}

pub(super) fn check(command: &str, output: &Output, input: Option<&str>) -> Result<(), IptablesError> {
    if output.status.success() {
        return Ok(());
    }
    let mut message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if let Some(line) = input.and_then(|input| complained_of(&message, input)) {
        message = format!("{message} [{line}]");
    }
    Err(failed(command.to_owned(), output.status.code().unwrap_or(-1), &message))
}

fn failed(command: String, status: i32, message: &str) -> IptablesError {
    // Both variants say so in words only; their exit status is that of any other failure.
    if message.contains("Permission denied") || message.contains("Operation not permitted") {
        let command = command.split(' ').next().unwrap_or_default().to_owned();
        return IptablesError::NotPermitted { command };
    }
    if message.contains("Message too long") {
        return IptablesError::TooLarge { command };
    }
    IptablesError::Failed { command, status, message: message.replace('\n', "; ") }
}

/// The input line whose number stands in a message such as `iptables-restore: line 7 failed`.
fn complained_of<'a>(message: &str, input: &'a str) -> Option<&'a str> {
    let after = message.split("line ").nth(1)?;
    let number: usize = after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()?;
    input.lines().nth(number.checked_sub(1)?)
}

/// Reads `1.8.9` out of `iptables v1.8.9 (nf_tables)`.
fn version_of(text: &str) -> Option<(u32, u32, u32)> {
    let number = text.split(" v").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version_of("iptables v1.8.9 (nf_tables)"), Some((1, 8, 9)));
        assert_eq!(version_of("ip6tables v1.6 (legacy)"), Some((1, 6, 0)));
        assert_eq!(version_of("what"), None);
    }

    #[test]
    fn a_failure_shows_the_line() {
        let input = "*nat\n-A X -j NOWHERE\nCOMMIT\n";
        assert_eq!(complained_of("iptables-restore: line 2 failed", input), Some("-A X -j NOWHERE"));
        assert_eq!(complained_of("no number", input), None);
    }
}
