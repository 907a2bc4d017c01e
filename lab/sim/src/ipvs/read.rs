use std::net::SocketAddr;

use super::{Forwarding, MarkService, Persistence, RealServer, Scheduler, VirtualService, VirtualServices};
use crate::masked::{Masked, from_bits, prefix_mask};
use crate::protocol::{Family, Protocol};

/// A line of `ipvsadm -Sn` that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("virtual services, line {line}: {problem}{}{text}", if text.is_empty() { "" } else { ": " })]
pub struct IpvsReadError {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The error.
    pub problem: String,
}

type OptionResult<T> = Result<T, String>;

/// Name, scheduler (`None`: any), bit.
const FLAGS: [(&str, Option<Scheduler>, u8); 7] = [
    ("sh-fallback", Some(Scheduler::SourceHash), 1),
    ("sh-port", Some(Scheduler::SourceHash), 2),
    ("mh-fallback", Some(Scheduler::Maglev), 1),
    ("mh-port", Some(Scheduler::Maglev), 2),
    ("flag-1", None, 1),
    ("flag-2", None, 2),
    ("flag-3", None, 4),
];

pub(super) fn flags(scheduler: Scheduler, bits: u8) -> String {
    let mut names = Vec::new();
    for bit in [1, 2, 4].into_iter().filter(|bit| bits & bit != 0) {
        let own = FLAGS.iter().find(|(_, of, value)| *of == Some(scheduler) && *value == bit);
        let any = FLAGS.iter().find(|(_, of, value)| of.is_none() && *value == bit);
        names.extend(own.or(any).map(|(name, ..)| *name));
    }
    names.join(",")
}

pub(super) fn netmask(ipv4: bool, prefix: u8) -> String {
    if ipv4 { from_bits(Family::V4, prefix_mask(Family::V4, prefix)).to_string() } else { prefix.to_string() }
}

struct IpvsOptions<'a>(std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>);

impl<'a> IpvsOptions<'a> {
    fn value(&mut self, option: &str) -> OptionResult<&'a str> {
        self.0.next().ok_or_else(|| format!("{option} needs a value"))
    }

    fn number(&mut self, option: &str) -> OptionResult<u32> {
        self.value(option)?.parse().map_err(|_| format!("{option} needs a number"))
    }

    fn address(&mut self, option: &str) -> OptionResult<SocketAddr> {
        let text = self.value(option)?;
        text.parse().map_err(|_| format!("{option} needs a numeric address:port (use ipvsadm -n), not {text}"))
    }

    fn service(&mut self) -> OptionResult<ServiceName> {
        let option = self.value("a service")?;
        let protocol = match option {
            "-t" | "--tcp-service" => Protocol::TCP,
            "-u" | "--udp-service" => Protocol::UDP,
            "--sctp-service" => Protocol::SCTP,
            "-f" | "--fwmark-service" => return Ok(ServiceName::Mark(self.number(option)?)),
            _ => return Err(format!("service option {option} is not modelled")),
        };
        Ok(ServiceName::Address(protocol, self.address(option)?))
    }

    /// Takes the values of an unknown option, and returns both as text.
    fn unknown(&mut self, option: &str) -> String {
        let mut text = option.to_owned();
        while let Some(value) = self.0.next_if(|word| !word.starts_with('-')) {
            text = format!("{text} {value}");
        }
        text
    }
}

enum ServiceName {
    Address(Protocol, SocketAddr),
    Mark(u32),
}

fn service(words: &mut IpvsOptions<'_>, protocol: Protocol, address: SocketAddr) -> OptionResult<VirtualService> {
    let full = if address.is_ipv4() { 32 } else { 128 };
    let mut this = VirtualService {
        protocol,
        address,
        scheduler: Scheduler::WeightedLeastConnections,
        flags: 0,
        persistence: None,
        one_packet: false,
        servers: Vec::new(),
        unmodelled: Vec::new(),
    };
    let (mut names, mut prefix) = ("", full);
    while let Some(option) = words.0.next() {
        match option {
            "-s" | "--scheduler" => {
                let name = words.value(option)?;
                match Scheduler::parse(name) {
                    Some(scheduler) => this.scheduler = scheduler,
                    None => this.unmodelled.push(format!("-s {name}")),
                }
            }
            "-p" | "--persistent" => {
                let given = words.0.peek().is_some_and(|word| !word.starts_with('-'));
                let seconds = if given { words.number(option)? } else { 360 };
                this.persistence = Some(Persistence { seconds, prefix: full });
            }
            "-M" | "--netmask" => {
                let text = words.value(option)?;
                let dotted = || Masked::parse(&format!("0.0.0.0/{text}")).and_then(|masked| masked.prefix());
                let read = if address.is_ipv4() { dotted() } else { text.parse().ok().filter(|length| *length <= 128) };
                match read {
                    Some(length) => prefix = length,
                    None => this.unmodelled.push(format!("-M {text}")),
                }
            }
            "-o" | "--ops" => this.one_packet = true,
            "-b" | "--sched-flags" => names = words.value(option)?,
            "-6" => {}
            _ => this.unmodelled.push(words.unknown(option)),
        }
    }
    for name in names.split(',').filter(|name| !name.is_empty()) {
        match FLAGS.iter().find(|(known, of, _)| *known == name && of.is_none_or(|of| of == this.scheduler)) {
            Some((.., bit)) => this.flags |= bit,
            None => this.unmodelled.push(format!("-b {name}")),
        }
    }
    if let Some(persistence) = &mut this.persistence {
        persistence.prefix = prefix;
    }
    Ok(this)
}

/// Adds a server, and unknown options to `service`.
fn server(words: &mut IpvsOptions<'_>, service: &mut VirtualService) -> OptionResult<()> {
    let mut address = None;
    let (mut forwarding, mut weight, mut upper, mut lower) = (Forwarding::Route, 1, 0, 0);
    while let Some(option) = words.0.next() {
        match option {
            "-r" | "--real-server" => address = Some(words.address(option)?),
            "-m" | "--masquerading" => forwarding = Forwarding::Masquerade,
            "-g" | "--gatewaying" => forwarding = Forwarding::Route,
            "-i" | "--ipip" => forwarding = Forwarding::Tunnel,
            "-w" | "--weight" => weight = words.number(option)?,
            "-x" | "--u-threshold" => upper = words.number(option)?,
            "-y" | "--l-threshold" => lower = words.number(option)?,
            // Tunnels are not simulated.
            "--tun-type" | "--tun-port" => {
                words.value(option)?;
            }
            "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => {}
            _ => service.unmodelled.push(words.unknown(option)),
        }
    }
    let address = address.ok_or("a destination needs -r address:port")?;
    // `list_add_rcu` adds in front (net/netfilter/ipvs/ip_vs_ctl.c).
    service.servers.insert(0, RealServer { address, forwarding, weight, upper, lower });
    Ok(())
}

pub(super) fn read(text: &str) -> Result<VirtualServices, IpvsReadError> {
    let mut all = VirtualServices::default();
    for (line, number) in text.lines().zip(1..) {
        let fail = |problem: String| IpvsReadError { line: number, text: line.to_owned(), problem };
        let mut words = IpvsOptions(line.split_ascii_whitespace().peekable());
        match words.0.next() {
            None => {}
            Some(first) if first.starts_with('#') => {}
            Some("-A" | "--add-service") => match words.service().map_err(fail)? {
                ServiceName::Mark(mark) => all.marks.push(MarkService { mark, lines: vec![line.to_owned()] }),
                ServiceName::Address(protocol, address) => {
                    if all.find(protocol, address.ip(), address.port()).is_some() {
                        return Err(fail("duplicate service".to_owned()));
                    }
                    all.services.push(service(&mut words, protocol, address).map_err(fail)?);
                }
            },
            Some("-a" | "--add-server") => {
                let name = words.service().map_err(fail)?;
                match name {
                    ServiceName::Mark(mark) => match all.marks.iter_mut().find(|service| service.mark == mark) {
                        Some(service) => service.lines.push(line.to_owned()),
                        None => return Err(fail(format!("unknown service -f {mark}"))),
                    },
                    ServiceName::Address(protocol, address) => {
                        let at = all.find(protocol, address.ip(), address.port());
                        let service = at.and_then(|at| all.services.get_mut(at));
                        let service = service.ok_or_else(|| fail(format!("unknown service {address}")))?;
                        server(&mut words, service).map_err(fail)?;
                    }
                }
            }
            Some(other) if other.starts_with('-') => return Err(fail("a line begins with -A or -a".to_owned())),
            // Perhaps a secret: its text is not quoted.
            Some(_) => {
                let problem = "this is no output of ipvsadm -Sn".to_owned();
                return Err(IpvsReadError { line: number, text: String::new(), problem });
            }
        }
    }
    Ok(all)
}
