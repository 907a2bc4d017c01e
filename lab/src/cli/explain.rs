//! `svclab explain`: a packet's path through the rules.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use svclab_audit::NodeError;
use svclab_audit::cluster::KnownAddresses;
use svclab_audit::explain::{Bare, ExplainCall as NodeCall, Named, NodeFacts, explain as explained};
use svclab_sim::assume::Assumptions;
use svclab_sim::network::{Network, Outcomes};
use svclab_sim::picture;
use svclab_sim::protocol::{Family, Protocol as Number};
use svclab_spec::Protocol;

use crate::bundle::{self, BundleStep, FailedCall};
use crate::complete;
use crate::exit::Exit;
use crate::explanation;
use crate::find;
use crate::mode::Mode;
use crate::scenario::run::{ObjectSource, ProxyUnderTest};
use crate::scenario::simulated::lab::SimLab;
use crate::scenario::simulated::machines::number;
use crate::scenario::simulated::outcomes::CallText;
use crate::scenario::simulated::render::Svcproxy;
use crate::schedule::check_modes;
use svclab_sim::cluster::{NodeReadError, NodeState};

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// An archive of `svclab collect` (`-`: standard input), or the bundle of a failed step, which contains the probe.
    #[arg(value_name = "NODE.tar|BUNDLE", conflicts_with_all = ["scenario", "rules", "nft", "ipset", "ipvs", "addresses"])]
    archive: Option<PathBuf>,
    /// The caller. For an archive: node, outside, an address, pod/[NAMESPACE/]NAME or node/NAME; for a dump: an address, or node for the
    /// machine itself; for a scenario: pod/NAME, node/NAME, client/NAME.
    #[arg(long, value_name = "PLACE", required_unless_present = "archive")]
    from: Option<String>,
    /// The destination: ADDRESS:PORT; for an archive also service/[NAMESPACE/]NAME[:PORT], nodePort/…, loadBalancer/… or externalIP/… of
    /// a service, or pod/[NAMESPACE/]NAME:PORT; for a scenario also service/NAME, nodePort/NAME@NODE and the like, as in its probes.
    #[allow(rustdoc::broken_intra_doc_links, reason = "brackets mean what may be left out")]
    #[arg(long, value_name = "TARGET", required_unless_present = "archive")]
    to: Option<String>,
    /// The protocol [default: that of the service's port, else TCP].
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    protocol: Option<ProtocolArg>,
    /// The answer to a match that the simulator cannot decide: NAME=yes or NAME=no, where NAME is the match (owner, socket, mac, …), or
    /// input-interface or output-interface for names of interfaces that a dump lacks. May be given several times.
    #[arg(long, value_name = "NAME=yes|no", conflicts_with = "scenario")]
    assume: Vec<String>,
    /// The cluster of a scenario before its first step, with the rules that svcproxy would program.
    #[arg(long, value_name = "FILE", add = complete::scenarios(), conflicts_with_all = ["rules", "nft", "ipset", "ipvs"])]
    scenario: Option<PathBuf>,
    /// The mode of svcproxy there [default: the scenario's first mode].
    #[arg(long, value_enum, value_name = "MODE", requires = "scenario")]
    mode: Option<Mode>,
    /// The node that a client's packets go to first.
    #[arg(long, value_name = "NODE", requires = "scenario")]
    via: Option<String>,
    /// svcproxy [default: $SVCPROXY, or the one beside this program].
    #[arg(long, value_name = "PROGRAM", requires = "scenario")]
    proxy: Option<PathBuf>,
    /// A dump: the output of `iptables-save`, or `ip6tables-save` for an IPv6 target, on any machine.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["scenario", "nft", "ipvs", "archive"])]
    rules: Option<PathBuf>,
    /// The output of `nft list ruleset`, or `nft -j list ruleset`, there.
    #[arg(long, value_name = "FILE")]
    nft: Option<PathBuf>,
    /// The output of `ipset save` there.
    #[arg(long, value_name = "FILE")]
    ipset: Option<PathBuf>,
    /// The output of `ipvsadm -Sn` there. The machine has the addresses of the virtual servers then.
    #[arg(long, value_name = "FILE")]
    ipvs: Option<PathBuf>,
    /// An address of that machine with its prefix, such as 172.18.0.2/16; may be given several times.
    #[arg(long = "address", value_name = "ADDRESS/LENGTH", conflicts_with = "scenario")]
    addresses: Vec<IpNet>,
    /// The input interface of the caller's packets [default: for an archive, by the node's routes; for a dump, matches of the input
    /// interface are undecided].
    #[arg(long = "in", value_name = "INTERFACE", conflicts_with = "scenario")]
    interface: Option<String>,
    /// Show every way as a tree, instead of one way and a list of the outcomes.
    #[arg(long)]
    all: bool,
    /// Also draw the ways as SVG, with their common part once; with --all every way by itself.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProtocolArg {
    Tcp,
    Udp,
    Sctp,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Self {
        match protocol {
            ProtocolArg::Tcp => Protocol::Tcp,
            ProtocolArg::Udp => Protocol::Udp,
            ProtocolArg::Sctp => Protocol::Sctp,
        }
    }
}

struct AskedCall {
    from: String,
    to: String,
    protocol: Option<Protocol>,
}

pub(super) fn explain(args: &ExplainArgs) -> Result<u8, Exit> {
    let bundle = args.archive.as_deref().filter(|path| path.is_dir());
    let failed = bundle.map(|bundle| BundleStep::read(bundle).map_err(|error| Exit::usage(error.to_string())));
    let call = failed.transpose()?.and_then(|failure| failure.call);
    let asked = asked(args, call.as_ref())?;
    match (&args.archive, &args.scenario) {
        (Some(archive), _) if bundle.is_none() => in_archive(args, &asked, archive),
        (Some(bundle), _) => match call {
            Some(call) => in_archive(args, &asked, &bundle.join(bundle::archive(&call.node))),
            None => {
                Err(Exit::usage(format!("{}: its step is no probe; name a node's archive in it", bundle.display())))
            }
        },
        (None, Some(scenario)) => in_scenario(args, &asked, scenario),
        (None, None) => in_dump(args, &asked),
    }
}

/// Takes missing flags from the failed probe of a bundle.
fn asked(args: &ExplainArgs, call: Option<&FailedCall>) -> Result<AskedCall, Exit> {
    let value = |flag: &str, given: Option<&String>, failed: Option<&String>| {
        let missing = || Exit::usage(format!("--{flag} is missing: only the bundle of a failed probe has it"));
        given.or(failed).cloned().ok_or_else(missing)
    };
    let from = value("from", args.from.as_ref(), call.map(|call| &call.from))?;
    let to = value("to", args.to.as_ref(), call.map(|call| &call.to))?;
    let spoken = |call: &FailedCall| ProtocolArg::from_str(&call.protocol, true).ok();
    let protocol = args.protocol.or_else(|| spoken(call.filter(|_| args.to.is_none())?));
    Ok(AskedCall { from, to, protocol: protocol.map(Protocol::from) })
}

fn in_scenario(args: &ExplainArgs, asked: &AskedCall, file: &Path) -> Result<u8, Exit> {
    let found = find::proxy(args.proxy.as_deref(), ObjectSource::Api)?;
    check_modes(&found, args.mode.as_slice())?;
    let ProxyUnderTest::Own(proxy) = found else {
        return Err(Exit::usage("--proxy: expected svcproxy, which can be asked what it would program"));
    };
    let scenario = find::load_one(file, 0)?;
    let first = scenario.modes.first().copied().unwrap_or(Mode::Iptables);
    let mode = args.mode.unwrap_or(first);
    let call = CallText {
        from: asked.from.clone(),
        to: asked.to.clone(),
        protocol: asked.protocol,
        family: None,
        via: args.via.clone(),
    };
    let mut lab =
        SimLab::start(&scenario, Arc::new(Svcproxy(proxy)), mode).map_err(|error| Exit::usage(error.to_string()))?;
    let explained = lab.explain(&call).map_err(|error| Exit::usage(error.to_string()))?;
    print(args, lab.network(), &explained.outcomes, &explained.calls, (&[], &BTreeSet::new()))
}

fn in_archive(args: &ExplainArgs, asked: &AskedCall, path: &Path) -> Result<u8, Exit> {
    let snapshot = super::audit::read(path)?;
    let wrong = |error: NodeError| Exit::usage(format!("{}: {error}", path.display()));
    let state = svclab_audit::machines::state(&snapshot).map_err(wrong)?;
    let known = KnownAddresses::of(&snapshot);
    let names = Named { snapshot: &snapshot, known: &known };
    let (to, spoken) = names.called(&asked.to).map_err(|error| Exit::usage(format!("--to {error}")))?;
    let from = names.caller(&asked.from, to.ip()).map_err(|error| Exit::usage(format!("--from {error}")))?;
    let spoken = spoken.map(|protocol| match protocol {
        svclab_oracle::Protocol::Tcp => Number::TCP,
        svclab_oracle::Protocol::Udp => Number::UDP,
        svclab_oracle::Protocol::Sctp => Number::SCTP,
    });
    let call = NodeCall {
        from,
        to,
        protocol: protocol(asked).or(spoken).unwrap_or(Number::TCP),
        input: args.interface.clone(),
        assumptions: assumptions(args)?,
    };
    let explained = explained(NodeFacts::Snapshot(&snapshot, &known), &state, &call).map_err(wrong)?;
    on_node(args, &explained)
}

fn in_dump(args: &ExplainArgs, asked: &AskedCall) -> Result<u8, Exit> {
    let to: SocketAddr = asked
        .to
        .parse()
        .map_err(|_| Exit::usage(format!("--to {}: of a dump nothing has a name; expected ADDRESS:PORT", asked.to)))?;
    let from = match asked.from.as_str() {
        "node" => svclab_audit::explain::Caller::Node,
        text => {
            let wrong = |_| Exit::usage(format!("--from {text}: expected an address, or `node`"));
            svclab_audit::explain::Caller::Address(text.parse::<IpAddr>().map_err(wrong)?)
        }
    };
    let state = read(args, to.ip())?;
    let bare = Bare { own: args.addresses.clone(), has_sets: args.ipset.is_some() };
    let call = NodeCall {
        from,
        to,
        protocol: protocol(asked).unwrap_or(Number::TCP),
        input: args.interface.clone(),
        assumptions: assumptions(args)?,
    };
    let explained = explained(NodeFacts::Bare(&bare), &state, &call).map_err(|error| Exit::usage(error.to_string()))?;
    on_node(args, &explained)
}

fn protocol(asked: &AskedCall) -> Option<Number> {
    asked.protocol.map(number)
}

fn assumptions(args: &ExplainArgs) -> Result<Assumptions, Exit> {
    let texts = args.assume.iter().map(String::as_str);
    Assumptions::parse(texts).map_err(|error| Exit::usage(format!("--assume: {error}")))
}

fn on_node(args: &ExplainArgs, explained: &svclab_audit::explain::Explained) -> Result<u8, Exit> {
    print(args, &explained.machines.network, &explained.outcomes, &[], (&explained.programs, &explained.assumed))
}

fn read(args: &ExplainArgs, to: IpAddr) -> Result<NodeState, Exit> {
    let text = |path: &Path| {
        let read = crate::input::dump(path);
        read.map(|text| (path.display().to_string(), text))
            .map_err(|error| Exit::usage(format!("cannot read {}: {error}", path.display())))
    };
    let wrong = |error: NodeReadError| Exit::usage(error.to_string());
    let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut program = NodeState::default();
    if let Some(path) = &args.rules {
        let (what, text) = text(path)?;
        program.read_any_rules(&what, family, &text).map_err(wrong)?;
        if program.rules(family).tables.is_empty() {
            return Err(Exit::usage(format!(
                "{what}: there is no table of iptables in it: nothing can be said of any packet"
            )));
        }
    }
    if let Some(path) = &args.nft {
        let (what, text) = text(path)?;
        program.read_nft(&what, &text).map_err(wrong)?;
        if program.nft.tables.is_empty() {
            return Err(Exit::usage(format!(
                "{what}: there is no table of nftables in it: nothing can be said of any packet"
            )));
        }
    }
    if let Some(path) = &args.ipset {
        let (what, text) = text(path)?;
        program.read_sets(&what, &text).map_err(wrong)?;
    }
    if let Some(path) = &args.ipvs {
        let (what, text) = text(path)?;
        program.read_servers(&what, &text).map_err(wrong)?;
    }
    Ok(program)
}

fn print(
    args: &ExplainArgs,
    network: &Network,
    outcomes: &Outcomes,
    calls: &[(String, Outcomes)],
    unknown: (&[String], &BTreeSet<String>),
) -> Result<u8, Exit> {
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, picture::draw_outcomes(outcomes, args.all));
        written.map_err(|error| Exit::usage(format!("cannot write the drawing {}: {error}", path.display())))?;
    }
    print!("{}", explanation::text(network, outcomes, calls, unknown, args.all));
    Ok(0)
}
