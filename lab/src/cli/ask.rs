use std::io::{self, Write};

use clap::Args;

use super::labs::LabChoice;
use crate::complete;
use crate::control::{self, ControlReply, ControlRequest, ProbeRequest, ProbeResult};
use crate::exit::{Exit, FAILED};

#[derive(Args)]
pub(super) struct ProbeArgs {
    /// Where requests start: pod/NAME, pod/NAMESPACE/NAME, node/NAME or client/NAME.
    #[arg(long, value_name = "PLACE", add = complete::places())]
    from: String,
    /// Where they go: service/NAME[:PORT], nodePort/NAME[:PORT]@NODE, loadBalancer/NAME[:PORT], externalIP/NAME[:PORT],
    /// pod/NAME:PORT, node/NAME:PORT or IP:PORT; PORT of a service is a name or a number.
    #[allow(rustdoc::broken_intra_doc_links, reason = "brackets mean what may be left out")]
    #[arg(long, value_name = "TARGET")]
    to: String,
    /// How many requests.
    #[arg(long, short = 'c', value_name = "NUMBER", default_value_t = 10)]
    count: usize,
    /// The node that a client's packets go to first.
    #[arg(long, value_name = "NODE")]
    via: Option<String>,
    /// Over UDP; needed only for a service with a TCP and a UDP port of the same number.
    #[arg(long)]
    udp: bool,
    /// How long an answer may take, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    patience: u64,
    #[command(flatten)]
    lab: LabChoice,
}

#[derive(Args)]
pub(super) struct LogsArgs {
    /// The proxy's node [default: the proxies of all nodes].
    node: Option<String>,
    /// Follow the log until ctrl-c.
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    lab: LabChoice,
}

impl From<io::Error> for Exit {
    fn from(error: io::Error) -> Exit {
        // The reader of the output may have closed the pipe.
        let is_over = error.kind() == io::ErrorKind::BrokenPipe;
        let message = if is_over { String::new() } else { format!("the lab does not answer: {error}") };
        Exit::unable(message)
    }
}

/// Sends requests; fails unless all are answered.
pub(super) fn probe(args: &ProbeArgs) -> Result<u8, Exit> {
    let lab = args.lab.find()?;
    let request = ProbeRequest {
        from: args.from.clone(),
        to: args.to.clone(),
        count: args.count,
        via: args.via.clone(),
        udp: args.udp,
        patience: args.patience,
    };
    let mut status = FAILED;
    control::ask(lab.pid, &ControlRequest::Probe(request), |reply| match reply {
        ControlReply::ProbeResult(probed) => {
            status = if probed.failures.is_empty() { 0 } else { FAILED };
            io::stdout().write_all(shown(&probed).as_bytes()).map_err(Exit::from)
        }
        ControlReply::Error(error) => Err(Exit::usage(error)),
        ControlReply::Line(_) => Ok(()),
    })?;
    Ok(status)
}

fn shown(probed: &ProbeResult) -> String {
    let answered: usize = probed.answered.iter().map(|one| one.count).sum();
    let sent = answered + probed.failures.values().sum::<usize>();
    let rows = probed.answered.iter().map(|one| {
        let saw = one.saw.iter().map(|(address, count)| format!("{address} ×{count}")).collect::<Vec<_>>().join(", ");
        [format!("×{}", one.count), one.server.clone(), one.node.clone(), format!("saw {saw}")]
    });
    let failures =
        probed.failures.iter().map(|(what, count)| [format!("×{count}"), what.clone(), String::new(), String::new()]);
    let rows: Vec<[String; 4]> = rows.chain(failures).collect();
    format!("{}: {answered} of {sent} answered\n{}", probed.to, super::table::lines(&rows, "  "))
}

pub(super) fn logs(args: &LogsArgs) -> Result<u8, Exit> {
    let lab = args.lab.find()?;
    let request = ControlRequest::Logs { node: args.node.clone(), follow: args.follow };
    control::ask(lab.pid, &request, |reply| match reply {
        ControlReply::Line(line) => writeln!(io::stdout(), "{line}").map_err(Exit::from),
        ControlReply::Error(error) => Err(Exit::usage(error)),
        ControlReply::ProbeResult(_) => Ok(()),
    })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::control::ServerAnswers;

    #[test]
    fn the_output_has_answers_and_client_addresses_by_server() {
        let answered = |server: &str, count: usize| ServerAnswers {
            server: server.to_owned(),
            node: "node-a".to_owned(),
            count,
            saw: BTreeMap::from([([10, 0, 0, 1].into(), count)]),
        };
        let probed = ProbeResult {
            to: "10.96.0.7:80/TCP".to_owned(),
            answered: vec![answered("default/web-1", 12), answered("default/web-2", 7)],
            failures: BTreeMap::from([("no answer".to_owned(), 1)]),
        };
        let expected = "10.96.0.7:80/TCP: 19 of 20 answered\n  ×12  default/web-1  node-a  saw 10.0.0.1 ×12\n  ×7   default/web-2  node-a  saw 10.0.0.1 ×7\n  ×1   no answer\n";
        assert_eq!(shown(&probed), expected);
    }
}
