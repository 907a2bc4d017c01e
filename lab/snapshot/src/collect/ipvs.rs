//! Virtual servers, from `ipvsadm -Sn` or `/proc/net/ip_vs`.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::tool::{Limits, ToolError, run};
use super::{files, ticks, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;

/// The file in `/proc/net`, which exists while the module is loaded.
const FILE: &str = "ip_vs";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServersError {
    #[error("/proc/net/ip_vs, line {line}: not understood: {text}")]
    Line { line: usize, text: String },
    #[error("/proc/net/ip_vs counts persistence in ticks, and how long these are is not known; install ipvsadm")]
    Ticks,
}

pub(super) fn is_loaded() -> bool {
    files::net(FILE).is_ok()
}

/// Runs `ipvsadm` only if the module is loaded: `ipvsadm` would load it.
pub(super) async fn read(limits: Limits) -> Result<Option<(String, Option<String>)>, Unread> {
    let Ok(text) = files::net(FILE) else { return Ok(None) };
    match run(&["ipvsadm", "-Sn"], limits).await {
        Err(ToolError::Missing { .. }) => {
            let hz = || ticks::per_second(&files::proc("/proc/schedstat").ok()?, &files::proc("/proc/uptime").ok()?);
            let servers = translate(&text, hz()).map_err(|error| unread(ArchivePart::Servers.path(), error))?;
            Ok(Some((servers, Some(format!("/proc/net/{FILE}, which has no scheduler flags")))))
        }
        answer => answer.map(|text| Some((text, None))).map_err(|error| unread(ArchivePart::Servers.path(), error)),
    }
}

/// Translates `/proc/net/ip_vs` (`ip_vs_info_seq_show`, `net/netfilter/ipvs/ip_vs_ctl.c`) to the format of `ipvsadm
/// -Sn`.
pub(super) fn translate(text: &str, hz: Option<u64>) -> Result<String, ServersError> {
    let mut out = String::new();
    let mut service = String::new();
    for (index, line) in text.lines().enumerate().skip(3) {
        let wrong = || ServersError::Line { line: index + 1, text: line.to_owned() };
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            [] => {}
            ["->", address, forward, weight, ..] => {
                let address = socket(address).ok_or_else(wrong)?;
                let forward = forwarding(forward).ok_or_else(wrong)?;
                let weight: u32 = weight.parse().map_err(|_| wrong())?;
                let _ = writeln!(out, "-a {service} -r {address} {forward} -w {weight}");
            }
            [protocol, address, scheduler, flags @ ..] => {
                service = name(protocol, address).ok_or_else(wrong)?;
                let _ = write!(out, "-A {service} -s {scheduler}");
                out.push_str(&options(flags, address.starts_with('['), hz)?.ok_or_else(wrong)?);
                out.push('\n');
            }
            _ => return Err(wrong()),
        }
    }
    Ok(out)
}

fn name(protocol: &str, address: &str) -> Option<String> {
    let option = match protocol {
        "TCP" => "-t",
        "UDP" => "-u",
        "SCTP" => "--sctp-service",
        "FWM" => return Some(format!("-f {}", u32::from_str_radix(address, 16).ok()?)),
        _ => return None,
    };
    Some(format!("{option} {}", socket(address)?))
}

/// Translates `ops`, and `persistent` with the timeout in ticks and the netmask (IPv6: a prefix length).
fn options(flags: &[&str], v6: bool, hz: Option<u64>) -> Result<Option<String>, ServersError> {
    let (once, rest) = match flags {
        ["ops", rest @ ..] => (" -o", rest),
        rest => ("", rest),
    };
    let persistent = match rest {
        [] => String::new(),
        ["persistent", ticks, mask] => {
            let (Ok(ticks), Ok(mask)) = (ticks.parse::<u64>(), u32::from_str_radix(mask, 16)) else { return Ok(None) };
            let seconds = ticks / hz.ok_or(ServersError::Ticks)?;
            let mask = match mask {
                u32::MAX if !v6 => String::new(),
                // The kernel prints the length byte-swapped.
                length if v6 && length.swap_bytes() <= 128 => netmask_v6(length.swap_bytes()),
                length if v6 => netmask_v6(length),
                mask => format!(" -M {}", Ipv4Addr::from_bits(mask)),
            };
            format!(" -p {seconds}{mask}")
        }
        _ => return Ok(None),
    };
    Ok(Some(format!("{persistent}{once}")))
}

fn netmask_v6(length: u32) -> String {
    if length == 128 { String::new() } else { format!(" -M {length}") }
}

fn forwarding(word: &str) -> Option<&'static str> {
    match word {
        "Masq" => Some("-m"),
        // The kernel replaces any method by `Local` for its own addresses; ipvsadm prints it as -g, too.
        "Route" | "Local" => Some("-g"),
        "Tunnel" => Some("-i"),
        _ => None,
    }
}

/// Parses `0A60000A:0050` or `[fd00:0000:0000:0000:0000:0000:0000:000a]:0050`.
fn socket(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    let address: IpAddr = match address.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok()?.into(),
        None => Ipv4Addr::from_bits(u32::from_str_radix(address, 16).ok()?).into(),
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use svclab_sim::ipvs::VirtualServices;

    use super::*;

    const TEXT: &str = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60000A:0050 rr persistent 2700000 FFFFFFFF
  -> 0AF40102:1F90      Masq    1      3          0         \n\
UDP  0A60000B:0035 sh ops
TCP  [fd00:0000:0000:0000:0000:0000:0000:000a]:01BB wlc persistent 2500 80000000
  -> [fd00:0000:0000:0000:0000:0000:0001:0002]:20FB      Masq    0      0          0
TCP  0A60000C:0050 rr persistent 2500 FFFFFF00
  -> AC120002:1F90      Local   1      0          0
";

    #[test]
    fn the_kernels_text_becomes_ipvsadms() {
        let translated = translate(TEXT, Some(250)).unwrap();
        let expected = "\
-A -t 10.96.0.10:80 -s rr -p 10800
-a -t 10.96.0.10:80 -r 10.244.1.2:8080 -m -w 1
-A -u 10.96.0.11:53 -s sh -o
-A -t [fd00::a]:443 -s wlc -p 10
-a -t [fd00::a]:443 -r [fd00::1:2]:8443 -m -w 0
-A -t 10.96.0.12:80 -s rr -p 10 -M 255.255.255.0
-a -t 10.96.0.12:80 -r 172.18.0.2:8080 -g -w 1
";
        assert_eq!(translated, expected);
        assert_eq!(VirtualServices::read(&translated).unwrap().services.len(), 4);
    }

    #[test]
    fn without_persistence_ticks_do_not_matter() {
        let rest: Vec<&str> = TEXT.lines().filter(|line| !line.contains("persistent")).collect();
        assert!(translate(&rest.join("\n"), None).is_ok());
        assert_eq!(translate(TEXT, None), Err(ServersError::Ticks));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["XYZ 1 2 3", "TCP  0A60000A rr", "  -> 0AF40102:1F90 Other 1 0 0", "TCP  0A60000A:0050 rr what"] {
            let text = format!("1\n2\n3\n{line}\n");
            assert!(matches!(translate(&text, Some(250)), Err(ServersError::Line { line: 4, .. })), "{line}");
        }
        assert_eq!(translate("FWM\n\n\nFWM  00000010 rr\n", None).unwrap(), "-A -f 16 -s rr\n");
    }
}
