//! `svclab explain`: why a packet goes where it goes.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use svclab_sim::host::Address;
use svclab_sim::network::Network;
use svclab_sim::protocol::{Family, Protocol as Number};
use svclab_sim::trace;
use svclab_spec::Protocol;

use super::run_args::ModeArg;
use super::{Exit, find};
use crate::scenario::file::Mode;
use crate::scenario::run::{Proxy, Source};
use crate::scenario::simulated::dump::{Caller, Dump, OUTSIDE};
use crate::scenario::simulated::lab::SimLab;
use crate::scenario::simulated::looks::{Call, Explained};
use crate::scenario::simulated::machines::number;
use crate::scenario::simulated::outcome_text;
use crate::scenario::simulated::render::Svcproxy;
use svclab_sim::cluster::{NodeState, ReadError};

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// Who calls: of a scenario pod/NAME, node/NAME, client/NAME; of a dump an address, or `node` for the machine itself.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Whom: ADDRESS:PORT, or in a scenario also service/NAME, nodePort/NAME@NODE and the like, as in its probes.
    #[arg(long, value_name = "TARGET")]
    to: String,
    /// Over TCP unless the service's port says otherwise.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    protocol: Option<ProtocolArg>,
    /// The cluster of a scenario before its first step, with what svcproxy would program for it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rules", "nft", "ipset", "ipvs"])]
    scenario: Option<PathBuf>,
    /// The mode that svcproxy is in there; default: the scenario's first one.
    #[arg(long, value_enum, value_name = "MODE", requires = "scenario")]
    mode: Option<ModeArg>,
    /// The node by which a client outside sends.
    #[arg(long, value_name = "NODE", requires = "scenario")]
    via: Option<String>,
    /// svcproxy [default: $SVCPROXY, or the one beside this program].
    #[arg(long, value_name = "PROGRAM", requires = "scenario")]
    proxy: Option<PathBuf>,
    /// A dump: what `iptables-save`, or `ip6tables-save` for an IPv6 target, has printed on any machine.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["scenario", "nft"])]
    rules: Option<PathBuf>,
    /// What `nft list ruleset`, or `nft -j list ruleset`, has printed there.
    #[arg(long, value_name = "FILE")]
    nft: Option<PathBuf>,
    /// What `ipset save` has printed there.
    #[arg(long, value_name = "FILE")]
    ipset: Option<PathBuf>,
    /// What `ipvsadm -Sn` has printed there; the addresses of virtual servers are the machine's then.
    #[arg(long, value_name = "FILE")]
    ipvs: Option<PathBuf>,
    /// An address of that machine with its prefix, such as 172.18.0.2/16; may be given several times.
    #[arg(long = "address", value_name = "ADDRESS/LENGTH", conflicts_with = "scenario")]
    addresses: Vec<IpNet>,
    /// The interface by which the caller's packets come in there.
    #[arg(long = "in", value_name = "INTERFACE", default_value = OUTSIDE, conflicts_with = "scenario")]
    interface: String,
    /// Every way as a tree, instead of one and a list of what can become of the packet.
    #[arg(long)]
    all: bool,
    /// Draw it, too, as SVG: ways that are alike once, or with --all every way by itself.
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

pub(super) fn explain(args: &ExplainArgs) -> Result<u8, Exit> {
    match &args.scenario {
        Some(scenario) => in_scenario(args, scenario),
        None => in_dump(args),
    }
}

fn in_scenario(args: &ExplainArgs, file: &Path) -> Result<u8, Exit> {
    let Proxy::Own(proxy) = find::proxy(args.proxy.as_deref(), Source::Api)? else {
        return Err(Exit::usage("--proxy: expected svcproxy, which can be asked what it would program"));
    };
    let scenario = find::load_all(&[file.to_owned()], 0)?.remove(0);
    let first = scenario.modes.first().copied().unwrap_or(Mode::Iptables);
    let mode = args.mode.map_or(first, Mode::from);
    let call = Call {
        from: args.from.clone(),
        to: args.to.clone(),
        protocol: args.protocol.map(Protocol::from),
        via: args.via.clone(),
    };
    let mut lab =
        SimLab::start(&scenario, Arc::new(Svcproxy(proxy)), mode).map_err(|error| Exit::usage(error.to_string()))?;
    let explained = lab.explain(&call).map_err(|error| Exit::usage(error.to_string()))?;
    print(args, lab.network(), &explained)
}

fn in_dump(args: &ExplainArgs) -> Result<u8, Exit> {
    let to: SocketAddr = args
        .to
        .parse()
        .map_err(|_| Exit::usage(format!("--to {}: of a dump nothing has a name; expected ADDRESS:PORT", args.to)))?;
    let caller = match args.from.as_str() {
        "node" => Caller::Itself,
        text => {
            let wrong = |_| Exit::usage(format!("--from {text}: expected an address, or `node`"));
            Caller::Address(text.parse::<IpAddr>().map_err(wrong)?, args.interface.clone())
        }
    };
    let program = read(args, to.ip())?;
    let own: Vec<(IpAddr, u8)> = args.addresses.iter().map(|own| (own.addr(), own.prefix_len())).collect();
    let wrong = |error: crate::scenario::simulated::dump::DumpError| Exit::usage(error.to_string());
    let dump = Dump::build(&program, &own, &caller).map_err(wrong)?;
    let protocol = args.protocol.map_or(Number::TCP, |protocol| number(protocol.into()));
    let outcomes = dump.outcomes(to, protocol).map_err(wrong)?;
    print(args, dump.network(), &Explained { outcomes, calls: Vec::new() })
}

/// Reads the dump's files. The addresses of virtual servers are bound, as on any machine that has some.
fn read(args: &ExplainArgs, to: IpAddr) -> Result<NodeState, Exit> {
    let text = |path: &Path| {
        let read = crate::input::dump(path);
        read.map(|text| (path.display().to_string(), text))
            .map_err(|error| Exit::usage(format!("cannot read {}: {error}", path.display())))
    };
    let wrong = |error: ReadError| Exit::usage(error.to_string());
    let mut program = NodeState::default();
    if let Some(path) = &args.rules {
        let (what, text) = text(path)?;
        program.read_rules(&what, if to.is_ipv4() { Family::V4 } else { Family::V6 }, &text).map_err(wrong)?;
    }
    if let Some(path) = &args.nft {
        let (what, text) = text(path)?;
        program.read_nft(&what, &text).map_err(wrong)?;
    }
    if let Some(path) = &args.ipset {
        let (what, text) = text(path)?;
        program.read_sets(&what, &text).map_err(wrong)?;
    }
    if let Some(path) = &args.ipvs {
        let (what, text) = text(path)?;
        program.read_servers(&what, &text).map_err(wrong)?;
        let own = |address: &IpAddr| args.addresses.iter().any(|own| own.addr() == *address);
        let virtual_addresses = program.servers.services.iter().map(|service| service.address.ip());
        let bound = virtual_addresses.filter(|address| !own(address));
        program.addresses =
            bound.map(|ip| Address { ip, prefix: IpNet::from(ip).prefix_len(), secondary: false }).collect();
        program.addresses.sort();
        program.addresses.dedup();
    }
    Ok(program)
}

fn print(args: &ExplainArgs, network: &Network, explained: &Explained) -> Result<u8, Exit> {
    let outcomes = &explained.outcomes;
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, trace::draw_outcomes(outcomes, args.all));
        written.map_err(|error| Exit::usage(format!("cannot write the drawing {}: {error}", path.display())))?;
    }
    println!("{}", outcome_text::ways(outcomes, args.all).trim_end());
    for (title, call) in &explained.calls {
        println!("\n{title}:\n{}", outcome_text::ways(call, args.all).trim_end());
    }
    println!();
    for line in outcome_text::outcomes(network, outcomes) {
        println!("{line}");
    }
    Ok(0)
}
