/// Whether a log line is a warning or an error: `tracing`'s WARN and ERROR, and klog's W, E and F.
pub(crate) fn complains(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let klog = first.strip_prefix(['W', 'E', 'F']).is_some_and(|day| day.len() == 4 && day.parse::<u16>().is_ok());
    klog || matches!(words.next(), Some("WARN" | "ERROR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_errors_are_complaints() {
        assert!(complains("2026-01-01T00:00:00.000000Z  WARN cannot do it"));
        assert!(complains("2026-01-01T00:00:00.000000Z ERROR cannot do it"));
        assert!(complains("E0612 12:00:00.000000       1 proxier.go:1] failed"));
        assert!(!complains("2026-01-01T00:00:00.000000Z  INFO synced: no WARN"));
        assert!(!complains("I0612 12:00:00.000000       1 proxier.go:1] Error is a word"));
        assert!(!complains("Endpoints changed") && !complains(""));
    }
}
