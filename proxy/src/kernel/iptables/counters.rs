use super::commands::{LOCK_WAIT, read};
use super::{IptablesError, Table};

#[derive(Debug, Clone)]
pub struct CommandCounters {
    command: String,
    save: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedRule {
    pub chain: String,
    /// The rule's text without chain and counters.
    pub rule: String,
    pub packets: u64,
}

impl CommandCounters {
    pub(super) fn new(command: &str, save: &str) -> CommandCounters {
        CommandCounters { command: command.to_owned(), save: save.to_owned() }
    }

    /// Returns a chain's counters; iptables-legacy reads the whole table.
    pub fn of_chain(&self, table: Table, chain: &str) -> Result<Vec<CountedRule>, IptablesError> {
        let arguments = ["-w", LOCK_WAIT, "-t", table.as_str(), "-v", "-S", chain];
        let output = read(&self.command, &arguments)?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(listed).collect())
    }

    /// Returns all rules' counters at a dump's cost.
    pub fn of_table(&self, table: Table) -> Result<Vec<CountedRule>, IptablesError> {
        let output = read(&self.save, &["-c", "-t", table.as_str()])?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(saved).collect())
    }
}

/// Parses `-A CHAIN … -c PACKETS BYTES -j TARGET` (`-v -S`).
fn listed(line: &str) -> Option<CountedRule> {
    let (chain, rest) = line.strip_prefix("-A ")?.split_once(' ')?;
    // A comment may contain `-c`, too.
    let places = rest.match_indices("-c ").map(|(at, _)| at).filter(|at| *at == 0 || rest[..*at].ends_with(' '));
    let counted = |at: usize| {
        let mut words = rest[at..].splitn(4, ' ').skip(1);
        let (packets, bytes) = (words.next()?.parse().ok()?, words.next()?);
        bytes.parse::<u64>().ok()?;
        let rule = format!("{}{}", &rest[..at], words.next().unwrap_or_default());
        Some(CountedRule { chain: chain.to_owned(), rule: rule.trim_end().to_owned(), packets })
    };
    places.filter_map(counted).last()
}

/// Parses `[PACKETS:BYTES] -A CHAIN …` (`iptables-save -c`).
fn saved(line: &str) -> Option<CountedRule> {
    let (packets, rest) = line.strip_prefix('[')?.split_once(':')?;
    let (chain, rule) = rest.split_once("] -A ")?.1.split_once(' ')?;
    Some(CountedRule { chain: chain.to_owned(), rule: rule.to_owned(), packets: packets.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(chain: &str, rule: &str, packets: u64) -> Option<CountedRule> {
        Some(CountedRule { chain: chain.to_owned(), rule: rule.to_owned(), packets })
    }

    #[test]
    fn counters_are_read_as_both_commands_print_them() {
        for (line, expected) in [
            ("-N KUBE-FORWARD", None),
            (
                "-A F -m conntrack --ctstate INVALID -c 12 3456 -j DROP",
                counted("F", "-m conntrack --ctstate INVALID -j DROP", 12),
            ),
            ("-A F -c 1 2 -j X", counted("F", "-j X", 1)),
            ("-A F -m comment --comment \"a -c 7 8\" -c 9 10", counted("F", "-m comment --comment \"a -c 7 8\"", 9)),
            ("-A F -j X", None),
        ] {
            assert_eq!(listed(line), expected, "{line}");
        }
        assert_eq!(saved("[12:3456] -A F -p tcp -j DROP"), counted("F", "-p tcp -j DROP", 12));
        assert_eq!(saved(":F - [12:3456]"), None);
        assert_eq!(saved("# Generated"), None);
    }
}
