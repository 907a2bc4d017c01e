//! Selects kernel modules and orders them for loading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::VmError;
use super::elf;

/// Modules to load at boot; missing ones may be built in.
pub const WANTED: &[&str] = &[
    "nf_conntrack nf_nat nf_conntrack_netlink nfnetlink_log",
    // iptables over nf_tables
    "nf_tables nft_compat nft_chain_nat nft_ct nft_limit nft_log nft_masq nft_nat nft_numgen nft_redir nft_reject",
    "nft_reject_inet nft_reject_ipv4 nft_reject_ipv6 nft_fib_inet nft_hash nft_counter",
    "nf_flow_table nf_flow_table_inet nft_flow_offload",
    // iptables-legacy
    "ip_tables iptable_nat iptable_filter iptable_mangle iptable_raw",
    "ip6_tables ip6table_nat ip6table_filter ip6table_mangle ip6table_raw",
    "xt_comment xt_mark xt_conntrack xt_statistic xt_recent xt_MASQUERADE xt_nat xt_multiport xt_set xt_addrtype",
    "xt_tcpudp xt_physdev xt_REDIRECT xt_LOG xt_limit xt_state xt_nfacct xt_CT xt_sctp xt_ipvs ipt_REJECT ip6t_REJECT",
    "xt_connmark xt_iprange ipt_rpfilter ip6t_rpfilter",
    "ip_set ip_set_hash_ip ip_set_hash_ipport ip_set_hash_ipportip ip_set_hash_ipportnet ip_set_bitmap_port",
    "veth bridge br_netfilter dummy tun vxlan sch_netem sch_htb",
    // SCTP and its hashes
    "hmac md5 sha1 sctp",
    "ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_lblc ip_vs_lblcr ip_vs_sh ip_vs_dh ip_vs_sed ip_vs_nq ip_vs_mh",
    "ip_vs_fo ip_vs_ovf",
];

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The name, with `_` for `-`.
    pub name: String,
    /// The uncompressed file.
    pub object: Vec<u8>,
}

/// Returns `wanted` modules with their dependencies in loading order.
pub fn in_order(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>, VmError> {
    let files = index(folder).map_err(VmError::io(format!("looking for modules in {}", folder.display())))?;
    let mut walk = ModuleWalk { files, seen: BTreeSet::new(), modules: Vec::new() };
    for name in wanted.iter().flat_map(|names| names.split(' ')) {
        walk.visit(name)?;
    }
    Ok(walk.modules)
}

struct ModuleWalk {
    files: BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    modules: Vec<Module>,
}

impl ModuleWalk {
    fn visit(&mut self, name: &str) -> Result<(), VmError> {
        // A module `…_generic` provides the algorithm that modules request by name.
        let portable = format!("{name}_generic");
        let name = if self.files.contains_key(name) { name } else { &portable };
        // A missing module is built in or unavailable.
        let Some(path) = self.files.get(name).filter(|_| !self.seen.contains(name)) else { return Ok(()) };
        let object = read(path).map_err(VmError::io(format!("reading the module {}", path.display())))?;
        self.seen.insert(name.to_owned());
        for needed in dependencies(&object) {
            self.visit(&needed)?;
        }
        self.modules.push(Module { name: name.to_owned(), object });
        Ok(())
    }
}

fn index(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kind.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.file_name().and_then(|name| name.to_str()).and_then(name_of) {
                found.insert(name, path);
            }
        }
    }
    Ok(found)
}

fn name_of(file: &str) -> Option<String> {
    let (name, ending) = file.split_once(".ko")?;
    matches!(ending, "" | ".xz").then(|| name.replace('-', "_"))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    let mut object = Vec::new();
    match path.extension() {
        Some(extension) if extension == "xz" => {
            lzma_rust2::XzReader::new(&bytes[..], true).read_to_end(&mut object)?;
        }
        _ => object = bytes,
    }
    object.truncate(unsigned(&object).len());
    Ok(object)
}

/// Removes the signature and its marker (`include/linux/module_signature.h`), because verification is most of the
/// loading time; the image's hash covers modules.
fn unsigned(object: &[u8]) -> &[u8] {
    const MARK: &[u8] = b"~Module signature appended~\n";
    const TRAILER: usize = 12;
    let without = || {
        let (rest, length) = object.strip_suffix(MARK)?.split_last_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(TRAILER - 4)?;
        rest.get(..rest.len().checked_sub(length)?)
    };
    without().unwrap_or(object)
}

fn dependencies(object: &[u8]) -> Vec<String> {
    let info = elf::section(object, ".modinfo").unwrap_or_default();
    let mut dependencies = Vec::new();
    for entry in info.split(|byte| *byte == 0) {
        let entry = String::from_utf8_lossy(entry);
        if let Some(names) = entry.strip_prefix("depends=") {
            dependencies.extend(names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")));
        } else if let Some(names) = entry.strip_prefix("softdep=pre: ") {
            let before = names.split(" post:").next().unwrap_or_default();
            dependencies.extend(before.split_whitespace().map(|name| name.replace('-', "_")));
        }
    }
    dependencies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(info: &str) -> Vec<u8> {
        let names = b"\0.modinfo\0";
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        let at = bytes.len();
        bytes.extend(info.as_bytes());
        let names_at = bytes.len();
        bytes.extend(names);
        let table = bytes.len();
        for (name, kind, at, length) in [(1_u32, 1_u32, at, info.len()), (0, 3, names_at, names.len())] {
            let mut header = vec![0; 64];
            header[0..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(length as u64).to_le_bytes());
            bytes.extend(header);
        }
        bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&2_u16.to_le_bytes());
        bytes[62..64].copy_from_slice(&1_u16.to_le_bytes());
        bytes
    }

    #[test]
    fn what_a_module_needs_comes_first_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let sub = directory.path().join("kernel/net");
        fs::create_dir_all(&sub).unwrap();
        for (file, info) in [
            ("nf-a.ko", "license=GPL\0depends=nf-b,c\0"),
            ("nf-b.ko", "depends=c\0softdep=pre: d-x\0"),
            ("c.ko", "depends=\0"),
            ("d-x_generic.ko", "license=GPL\0"),
            ("unwanted.ko", "depends=\0"),
        ] {
            fs::write(sub.join(file), object(info)).unwrap();
        }
        let modules = in_order(directory.path(), &["nf_a built_in", "c"]).unwrap();
        assert_eq!(
            modules.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(),
            ["c", "d_x_generic", "nf_b", "nf_a"]
        );
    }

    #[test]
    fn a_module_loses_its_signature() {
        let signed = |length: u32| {
            let trailer = [&[0; 8][..], &length.to_be_bytes()].concat();
            [b"\x7fELF...".as_slice(), b"signed", &trailer, b"~Module signature appended~\n"].concat()
        };
        assert_eq!(unsigned(&signed(6)), b"\x7fELF...");
        assert_eq!(unsigned(&signed(7000)), signed(7000), "of a length that cannot be");
        for cut in 0..signed(6).len() {
            assert_eq!(unsigned(&signed(6)[..cut]), &signed(6)[..cut]);
        }
    }

    #[test]
    fn only_modules_have_names() {
        assert_eq!(name_of("nft-compat.ko.xz").as_deref(), Some("nft_compat"));
        assert_eq!(name_of("modules.order"), None);
        assert_eq!(name_of("x.ko.gz"), None);
    }
}
