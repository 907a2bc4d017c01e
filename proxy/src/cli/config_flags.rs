use std::collections::BTreeMap;

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value, json};

use crate::kubeproxy_config::{ConfigField, FIELDS, FieldSupport, FlagValue, GoDuration, KubeProxyConfiguration};

#[derive(Debug, Clone, Default)]
pub struct ConfigFlags(pub BTreeMap<&'static str, Value>);

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        let default = serde_json::to_value(KubeProxyConfiguration::default()).unwrap_or_default();
        let flags = FIELDS.iter().filter_map(|field| Some((field, field.flag?)));
        flags.fold(command, |command, (field, (name, kind))| command.arg(arg(field, name, kind, &default)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ConfigFlags, clap::Error> {
        let mut given = BTreeMap::new();
        for field in FIELDS {
            let Some((name, _)) = field.flag else { continue };
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let values = matches.get_many::<Value>(name).into_iter().flatten().cloned();
            if let Some(value) = values.reduce(combine) {
                given.insert(field.path, value);
            }
        }
        Ok(ConfigFlags(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ConfigFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// As in kube-proxy, repeated lists and mappings accumulate; of other flags the last wins.
fn combine(earlier: Value, later: Value) -> Value {
    match (earlier, later) {
        (Value::Array(mut items), Value::Array(more)) => {
            items.extend(more);
            Value::Array(items)
        }
        (Value::Object(mut fields), Value::Object(more)) => {
            fields.extend(more);
            Value::Object(fields)
        }
        (_, later) => later,
    }
}

fn arg(field: &ConfigField, name: &'static str, kind: FlagValue, default: &Value) -> Arg {
    let at = field.path.split('.').try_fold(default, |value, key| value.get(key));
    let shown = match at {
        Some(Value::String(text)) if !text.is_empty() => format!(" [default: {text}]"),
        Some(Value::Number(number)) => format!(" [default: {number}]"),
        Some(Value::Bool(true)) => " [default: true]".to_owned(),
        _ => String::new(),
    };
    let effect = match field.state {
        FieldSupport::NoEffect(why) | FieldSupport::Pending(why) => format!(" (no effect: {why})"),
        FieldSupport::Honoured | FieldSupport::Different(_) => String::new(),
    };
    let arg = Arg::new(name).help(format!("{}{effect}{shown}", field.help)).action(ArgAction::Append);
    let arg = if name.len() == 1 { arg.short(name.chars().next()).long(name) } else { arg.long(name) };
    let arg = arg.value_parser(parser(kind)).value_name(value_name(kind));
    match kind {
        // As in Go, `--x` means `--x=true`, and `--x false` is not accepted.
        FlagValue::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        FlagValue::Number => arg.allow_negative_numbers(true),
        _ => arg,
    }
}

fn value_name(kind: FlagValue) -> &'static str {
    match kind {
        FlagValue::Text => "TEXT",
        FlagValue::Bool => "BOOL",
        FlagValue::Number | FlagValue::Fraction => "NUMBER",
        FlagValue::Time => "TIME",
        FlagValue::List => "LIST",
        FlagValue::Gates => "NAME=BOOL",
        FlagValue::Modules => "PATTERN=NUMBER",
    }
}

fn parser(kind: FlagValue) -> ValueParser {
    match kind {
        FlagValue::Text => ValueParser::new(|text: &str| Ok::<_, String>(Value::from(text))),
        FlagValue::Bool => ValueParser::new(|text: &str| boolean(text).map(Value::from)),
        FlagValue::Number => ValueParser::new(|text: &str| {
            text.parse::<i32>().map(Value::from).map_err(|_| format!("{text:?} is no whole number"))
        }),
        FlagValue::Fraction => ValueParser::new(|text: &str| {
            let number = text.parse::<f32>().ok().filter(|number| number.is_finite());
            number.map(|number| json!(number)).ok_or_else(|| format!("{text:?} is no number"))
        }),
        FlagValue::Time => {
            ValueParser::new(|text: &str| text.parse::<GoDuration>().map(|time| Value::from(time.to_string())))
        }
        FlagValue::List => ValueParser::new(|text: &str| Ok::<_, String>(Value::from(parts(text).collect::<Vec<_>>()))),
        FlagValue::Gates => ValueParser::new(|text: &str| {
            let pair = |part: &str| {
                let (name, on) = part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=BOOL"))?;
                Ok((name.trim().to_owned(), Value::from(boolean(on.trim())?)))
            };
            parts(text).map(pair).collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }),
        FlagValue::Modules => ValueParser::new(|text: &str| {
            let pair = |part: &str| {
                let pair = part.split_once('=').and_then(|(name, level)| Some((name, level.parse::<u32>().ok()?)));
                let (name, level) = pair.ok_or_else(|| format!("{part:?} is not PATTERN=NUMBER"))?;
                Ok(json!({ "filePattern": name, "verbosity": level }))
            };
            parts(text).map(pair).collect::<Result<Vec<_>, String>>().map(Value::Array)
        }),
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Parses as Go's `strconv.ParseBool`.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[&str]) -> Result<Value, String> {
        let command = ConfigFlags::augment_args(Command::new("x"));
        let flags = std::iter::once("x").chain(flags.iter().copied());
        let matches = command.try_get_matches_from(flags).map_err(|error| error.to_string())?;
        let given = ConfigFlags::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Ok(given.0.into_iter().map(|(path, value)| (path.to_owned(), value)).collect::<Map<_, _>>().into())
    }

    #[test]
    fn flags_become_values_of_their_fields() {
        let flags = [
            "--masquerade-all",
            "--iptables-localhost-nodeports=false",
            "--nodeport-addresses=10.0.0.0/8,primary",
            "--nodeport-addresses",
            "localhost",
            "--feature-gates=A=true,B=false",
            "--conntrack-tcp-timeout-established=1h30m",
            "--oom-score-adj",
            "-998",
            "--kube-api-qps=7.5",
            "-v",
            "4",
            "--vmodule=server=2",
            "--healthz-bind-address=",
        ];
        let expected = json!({
            "iptables.masqueradeAll": true,
            "iptables.localhostNodePorts": false,
            "nodePortAddresses": ["10.0.0.0/8", "primary", "localhost"],
            "featureGates": {"A": true, "B": false},
            "conntrack.tcpEstablishedTimeout": "1h30m0s",
            "oomScoreAdj": -998,
            "clientConnection.qps": 7.5,
            "logging.verbosity": 4,
            "logging.vmodule": [{"filePattern": "server", "verbosity": 2}],
            "healthzBindAddress": "",
        });
        assert_eq!(given(&flags).unwrap(), expected);
        assert_eq!(given(&[]).unwrap(), json!({}));
    }

    #[test]
    fn invalid_values_are_rejected_with_their_flag() {
        for (flag, problem) in [
            ("--masquerade-all=maybe", "\"maybe\" is neither true nor false"),
            ("--iptables-sync-period=30", "\"30\" is no time such as 30s"),
            ("--oom-score-adj=x", "\"x\" is no whole number"),
            ("--feature-gates=A", "\"A\" is not NAME=BOOL"),
            ("--kube-api-qps=NaN", "\"NaN\" is no number"),
            ("--no-such-flag", "unexpected argument"),
        ] {
            let reported = given(&[flag]).unwrap_err();
            assert!(reported.contains(problem) && reported.contains(flag.split('=').next().unwrap()), "{reported}");
        }
    }
}
