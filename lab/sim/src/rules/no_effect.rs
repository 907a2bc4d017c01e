use super::error::ParseResult;
use super::target::RuleTarget;
use super::tokens::OptionReader;

/// Options by target; `true` marks options with values.
const TARGETS: [(&str, &[(&str, bool)]); 17] = [
    (
        "LOG",
        &[
            ("--log-level", true),
            ("--log-prefix", true),
            ("--log-tcp-sequence", false),
            ("--log-tcp-options", false),
            ("--log-ip-options", false),
            ("--log-uid", false),
            ("--log-macdecode", false),
        ],
    ),
    (
        "NFLOG",
        &[
            ("--nflog-group", true),
            ("--nflog-prefix", true),
            ("--nflog-range", true),
            ("--nflog-size", true),
            ("--nflog-threshold", true),
        ],
    ),
    ("TCPMSS", &[("--set-mss", true), ("--clamp-mss-to-pmtu", false)]),
    ("TRACE", &[]),
    ("CHECKSUM", &[("--checksum-fill", false)]),
    ("AUDIT", &[("--type", true)]),
    ("CLASSIFY", &[("--set-class", true)]),
    ("DSCP", &[("--set-dscp", true), ("--set-dscp-class", true)]),
    ("TOS", &[("--set-tos", true), ("--and-tos", true), ("--or-tos", true), ("--xor-tos", true)]),
    // Sends a copy elsewhere.
    ("TEE", &[("--gateway", true), ("--oif", true)]),
    ("TCPOPTSTRIP", &[("--strip-options", true)]),
    ("ECN", &[("--ecn-tcp-remove", false)]),
    ("IDLETIMER", &[("--timeout", true), ("--label", true), ("--alarm", false)]),
    ("RATEEST", &[("--rateest-name", true), ("--rateest-interval", true), ("--rateest-ewmalog", true)]),
    ("LED", &[("--led-trigger-id", true), ("--led-delay", true), ("--led-always-blink", false)]),
    ("SECMARK", &[("--selctx", true)]),
    ("CONNSECMARK", &[("--save", false), ("--restore", false)]),
];

pub(super) fn read(name: &str, words: &mut OptionReader<'_>) -> ParseResult<Option<RuleTarget>> {
    let Some((name, known)) = TARGETS.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let mut options = Vec::new();
    while let Some(option) = words.option(|word| known.iter().any(|(name, _)| *name == word)) {
        words.plain()?;
        let takes = known.iter().any(|(name, takes)| *name == option && *takes);
        let value = if takes { Some(words.value()?.to_owned()) } else { None };
        options.push((option.to_owned(), value));
    }
    Ok(Some(RuleTarget::NoEffect { name, options }))
}
