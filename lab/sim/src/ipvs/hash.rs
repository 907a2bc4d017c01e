use std::net::IpAddr;

use super::{RealServer, VirtualService};

/// `IP_VS_SH_TAB_BITS` and `IP_VS_DH_TAB_BITS` are 8.
const BUCKETS: usize = 256;
/// The size for `CONFIG_IP_VS_MH_TAB_INDEX` 12, the default.
const MAGLEV_BUCKETS: usize = 4093;
/// Bits of a weight in `mh`.
const MAGLEV_BITS: u32 = 6;

fn fold(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (0..4).fold(0, |folded, word| folded ^ (bits >> (32 * word)) as u32)
        }
    }
}

/// `hash_32(value, 8)` (include/linux/hash.h).
fn hash_32(value: u32) -> usize {
    (value.wrapping_mul(0x61c8_8647) >> 24) as usize
}

pub(super) fn available(server: &RealServer, overloaded: bool) -> bool {
    server.weight > 0 && !overloaded
}

/// Returns each bucket's server: by weight for `sh`, in turn for `dh`.
fn buckets(service: &VirtualService, weighted: bool) -> Vec<usize> {
    let (mut at, mut given) = (0, 0);
    let mut all = Vec::with_capacity(BUCKETS);
    for _ in 0..BUCKETS {
        all.push(at);
        given += 1;
        if !weighted || given >= service.servers[at].weight {
            at = (at + 1) % service.servers.len();
            given = 0;
        }
    }
    all
}

/// Models `ip_vs_dh_schedule`.
pub(super) fn destination(service: &VirtualService, to: IpAddr, free: impl Fn(usize) -> bool) -> Option<usize> {
    if service.servers.is_empty() {
        return None;
    }
    let chosen = buckets(service, false)[hash_32(fold(to))];
    free(chosen).then_some(chosen)
}

/// Models `ip_vs_sh_schedule`.
pub(super) fn source(
    service: &VirtualService,
    client: IpAddr,
    port: u16,
    free: impl Fn(usize) -> bool,
) -> Option<usize> {
    if service.servers.is_empty() {
        return None;
    }
    let port = if service.flags & VirtualService::PORT != 0 { port } else { 0 };
    let hash = hash_32(u32::from(port).wrapping_add(fold(client)));
    let owners = buckets(service, true);
    if free(owners[hash]) || service.flags & VirtualService::FALLBACK == 0 {
        return Some(owners[hash]).filter(|chosen| free(*chosen));
    }
    let mut others = (0..BUCKETS).map(|offset| owners[((offset + hash) % BUCKETS + hash) % BUCKETS]);
    others.find(|chosen| free(*chosen))
}

/// SipHash-1-3 of a word, in 32 bits (lib/siphash.c, hsiphash_1u32).
fn hsiphash(value: u32, key: u64) -> u32 {
    let mut v = [
        0x736f_6d65_7073_6575 ^ key,
        0x646f_7261_6e64_6f6d ^ key,
        0x6c79_6765_6e65_7261 ^ key,
        0x7465_6462_7974_6573 ^ key,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    };
    // The top byte is the length, 4.
    let block = 4 << 56 | u64::from(value);
    v[3] ^= block;
    round(&mut v);
    v[0] ^= block;
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    (v[0] ^ v[1] ^ v[2] ^ v[3]) as u32
}

/// generate_hash_secret in ip_vs_mh.c.
const KEYS: [u64; 2] = [2_654_435_761, 2_654_446_892];

fn maglev_key(address: IpAddr, port: u16, key: u64, offset: u32) -> u32 {
    hsiphash(offset.wrapping_add(u32::from(port)).wrapping_add(fold(address)), key)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Models ip_vs_mh_permutate, ip_vs_mh_populate.
fn maglev_buckets(service: &VirtualService) -> Option<Vec<usize>> {
    let divisor = service.servers.iter().map(|server| server.weight).fold(0, gcd);
    if divisor == 0 {
        return None;
    }
    let most = service.servers.iter().map(|server| server.weight / divisor).max().unwrap_or(0);
    let shift = (u32::BITS - most.leading_zeros()).saturating_sub(MAGLEV_BITS);
    let size = MAGLEV_BUCKETS as u32;
    let mut setup: Vec<(u32, u32, u32)> = Vec::new();
    for server in &service.servers {
        let (address, port) = (server.address.ip(), server.address.port());
        let offset = maglev_key(address, port, KEYS[0], 0) % size;
        let skip = maglev_key(address, port, KEYS[1], 0) % (size - 1) + 1;
        let turns = (server.weight / divisor) >> shift;
        setup.push((offset, skip, if turns == 0 { u32::from(server.weight != 0) } else { turns }));
    }
    let mut owners = vec![None; MAGLEV_BUCKETS];
    let mut left = MAGLEV_BUCKETS;
    loop {
        for (at, (place, skip, turns)) in setup.iter_mut().enumerate() {
            for _ in 0..*turns {
                while owners[*place as usize].is_some() {
                    *place = (*place + *skip) % size;
                }
                owners[*place as usize] = Some(at);
                left -= 1;
                if left == 0 {
                    return owners.into_iter().collect();
                }
            }
        }
    }
}

/// Models `ip_vs_mh_schedule`.
pub(super) fn maglev(
    service: &VirtualService,
    client: IpAddr,
    port: u16,
    free: impl Fn(usize) -> bool,
) -> Option<usize> {
    let port = if service.flags & VirtualService::PORT != 0 { port } else { 0 };
    let owners = maglev_buckets(service)?;
    let hash = |offset: u32| maglev_key(client, port, KEYS[0], offset) as usize % MAGLEV_BUCKETS;
    let first = hash(0);
    if free(owners[first]) || service.flags & VirtualService::FALLBACK == 0 {
        return Some(owners[first]).filter(|chosen| free(*chosen));
    }
    let mut others = (0..MAGLEV_BUCKETS).map(|offset| owners[hash(((offset + first) % MAGLEV_BUCKETS) as u32)]);
    others.find(|chosen| free(*chosen))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::ipvs::VirtualServices;

    fn service(scheduler: &str, weights: &[u32]) -> VirtualService {
        let mut text = format!("-A -t 10.96.0.1:80 -s {scheduler}\n");
        for (at, weight) in weights.iter().enumerate().rev() {
            text.push_str(&format!("-a -t 10.96.0.1:80 -r 10.244.0.{}:80 -m -w {weight}\n", at + 1));
        }
        VirtualServices::read(&text).unwrap().services.remove(0)
    }

    #[test]
    fn maglev_fills_its_table_evenly_and_by_weight() {
        let share = |weights: &[u32]| {
            let owners = maglev_buckets(&service("mh", weights)).unwrap();
            let of = |server| owners.iter().filter(|owner| **owner == server).count();
            (0..weights.len()).map(of).collect::<Vec<_>>()
        };
        assert_eq!(share(&[1, 1, 1]), [1365, 1364, 1364]);
        assert_eq!(share(&[2, 1, 0]), [2729, 1364, 0]);
        assert!(maglev_buckets(&service("mh", &[0, 0])).is_none());
    }

    #[test]
    fn sh_keeps_the_server_and_falls_back_only_with_the_flag() {
        let client: IpAddr = "192.0.2.1".parse().unwrap();
        let plain = service("sh", &[1, 1]);
        let chosen = source(&plain, client, 1000, |_| true).unwrap();
        assert_eq!(source(&plain, client, 2000, |_| true), Some(chosen));
        assert_eq!(source(&plain, client, 1000, |server| server != chosen), None);
        let other = service("sh -b sh-fallback", &[1, 1]);
        assert_eq!(source(&other, client, 1000, |server| server != chosen), Some(1 - chosen));
        let ports = service("sh -b sh-port", &[1, 1]);
        let by_port: std::collections::BTreeSet<_> =
            (0..64).map(|port| source(&ports, client, port, |_| true)).collect();
        assert_eq!(by_port.len(), 2);
    }
}
