//! conntrack's and the process's limits, which kube-proxy sets at the start.

#![allow(unsafe_code, reason = "signal(2), which is safe where a signal is ignored")]

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, signal};

use super::sysctl::{self, SettingChange, SysctlError};
use crate::config::Conntrack;

const MAX: &str = "net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";
const TCP_ESTABLISHED: &str = "net/netfilter/nf_conntrack_tcp_timeout_established";
const TCP_CLOSE_WAIT: &str = "net/netfilter/nf_conntrack_tcp_timeout_close_wait";
const UDP: &str = "net/netfilter/nf_conntrack_udp_timeout";
const UDP_STREAM: &str = "net/netfilter/nf_conntrack_udp_timeout_stream";
/// The node's processors, not only those of this process (kubernetes#99225,
/// `Documentation/ABI/stable/sysfs-devices-system-cpu`).
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// The limit of the scaled maximum, as in kube-proxy's `getConntrackMax` (pkg/proxy/conntrack/sysctls.go).
const MOST_SCALED: u64 = 1 << 20;
const PER_BUCKET: u64 = 4;

pub fn set_conntrack(limits: &Conntrack, change: SettingChange) -> Vec<String> {
    let mut refused = Vec::new();
    if let Some(most) = most_connections(limits, processors()) {
        match raise(MAX, most, change) {
            Ok(()) => refused.extend(enough_buckets(most / PER_BUCKET, change).err()),
            Err(error) => refused.push(hint(&error, "conntrack.maxPerCore: 0 (--conntrack-max-per-core=0)")),
        }
    }
    let timeouts = [
        (TCP_ESTABLISHED, limits.tcp_established),
        (TCP_CLOSE_WAIT, limits.tcp_close_wait),
        (UDP, limits.udp),
        (UDP_STREAM, limits.udp_stream),
    ];
    for (key, timeout) in timeouts {
        if let Some(seconds) = seconds(timeout)
            && let Err(error) = sysctl::ensure(key, &seconds.to_string(), change)
        {
            refused.push(hint(&error, "a time of 0"));
        }
    }
    refused
}

/// Replaces zeros by the kernel's timeouts.
pub fn timeouts(limits: &Conntrack) -> Conntrack {
    // Defaults of `Documentation/networking/nf_conntrack-sysctl.rst`.
    let filled = |given: Duration, key: &str, default: u64| {
        let kernels = || sysctl::read(key).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        if given.is_zero() { Duration::from_secs(kernels()) } else { given }
    };
    Conntrack {
        tcp_established: filled(limits.tcp_established, TCP_ESTABLISHED, 432_000),
        tcp_close_wait: filled(limits.tcp_close_wait, TCP_CLOSE_WAIT, 60),
        udp: filled(limits.udp, UDP, 30),
        udp_stream: filled(limits.udp_stream, UDP_STREAM, 120),
        ..limits.clone()
    }
}

fn hint(error: &SysctlError, without: &str) -> String {
    format!("{error}; it stays as it is ({without} leaves it alone)")
}

fn raise(key: &str, least: u64, change: SettingChange) -> Result<(), SysctlError> {
    match sysctl::read(key).ok().and_then(|present| present.parse::<u64>().ok()) {
        Some(present) if present >= least => Ok(()),
        _ => sysctl::ensure(key, &least.to_string(), change),
    }
}

/// Returns the maximum; the configured minimum may exceed [`MOST_SCALED`].
fn most_connections(limits: &Conntrack, processors: u64) -> Option<u64> {
    let scaled = u64::from(limits.max_per_core).saturating_mul(processors).min(MOST_SCALED);
    (limits.max_per_core > 0).then(|| scaled.max(limits.min.into()))
}

fn processors() -> u64 {
    let usable = || std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
    std::fs::read_to_string(ONLINE).ok().and_then(|ranges| number_in(&ranges)).unwrap_or_else(usable)
}

/// Returns the number of processors in a list such as `0-3,8`.
fn number_in(ranges: &str) -> Option<u64> {
    let number = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(u64::from(last.checked_sub(first)?) + 1)
    };
    ranges.trim().split(',').map(number).sum()
}

/// Returns seconds; `None` leaves the setting unchanged.
fn seconds(timeout: Duration) -> Option<u64> {
    // 0 would end every flow at once.
    (!timeout.is_zero()).then(|| timeout.as_secs().max(1))
}

/// Raises the number of buckets: long chains slow down every packet.
fn enough_buckets(wanted: u64, change: SettingChange) -> Result<(), String> {
    let present = std::fs::read_to_string(BUCKETS).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if present.is_some_and(|present| present >= wanted) {
        return Ok(());
    }
    change
        .apply(Path::new(BUCKETS), &wanted.to_string())
        .map_err(|error| format!("cannot set conntrack's hash table to {wanted} buckets ({BUCKETS}): {error}"))
}

/// Returns a message if refused (proc(5)).
pub fn set_oom_score_adj(value: i32) -> Option<String> {
    let path = "/proc/self/oom_score_adj";
    if std::fs::read_to_string(path).is_ok_and(|present| present.trim() == value.to_string()) {
        return None;
    }
    let written = std::fs::write(path, value.to_string());
    written.err().map(|error| format!("cannot set oom_score_adj to {value}: {error}; it stays as it is"))
}

/// Makes writes beyond `RLIMIT_FSIZE` fail instead of killing the process (SIGXFSZ, setrlimit(2)).
pub fn survive_file_size_limit() {
    // SAFETY: ignoring a signal runs no handler.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

pub fn in_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_first(&map))
}

fn is_first(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_per_processor_with_a_floor() {
        let limit = |max_per_core, min| most_connections(&Conntrack { max_per_core, min, ..Conntrack::default() }, 4);
        assert_eq!(limit(32_768, 131_072), Some(131_072));
        assert_eq!(limit(65_536, 131_072), Some(262_144));
        assert_eq!(limit(1, 123_456), Some(123_456));
        assert_eq!(limit(0, 123_456), None, "0 leaves it, whatever the minimum");
        assert_eq!(limit(262_144, 0), Some(1 << 20));
        assert_eq!(limit(262_145, 0), Some(1 << 20), "the scaled value has a bound");
        assert_eq!(limit(u32::MAX, 2_000_000), Some(2_000_000), "the minimum has none");
        assert_eq!(seconds(Duration::ZERO), None);
        assert_eq!(seconds(Duration::from_secs(86_400)), Some(86_400));
    }

    #[test]
    fn processors_are_counted_by_their_ranges() {
        for (ranges, number) in [("0\n", 1), ("0-63\n", 64), ("0-3,8,10-11\n", 7)] {
            assert_eq!(number_in(ranges), Some(number), "{ranges:?}");
        }
        for none in ["", "\n", "x", "3-0", "0-", "-1", "0,,2", "0-99999999999"] {
            assert_eq!(number_in(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_first_user_namespace_maps_everybody_to_themselves() {
        assert!(is_first("         0          0 4294967295\n"));
        assert!(!is_first("         0       1000          1\n"));
        assert!(!is_first("0 0 65536\n") && !is_first(""));
    }

    #[test]
    fn an_oom_score_that_stands_already_is_not_written() {
        let present = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert_eq!(set_oom_score_adj(present.trim().parse().unwrap()), None);
    }
}
