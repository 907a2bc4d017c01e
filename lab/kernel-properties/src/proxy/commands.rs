use svclab_properties::proxies::Dump;
use svclab_sim::nft::Ruleset;
use svclab_sim::rules::TableName;
use svcproxy::config::{Mode, Variant};
use svcproxy::kernel::command;
use svcproxy::kernel::dummy::DEVICE;
use svcproxy::mode::nftables::layout::TABLE;
use svcproxy::model::Family;

#[derive(Debug, Clone)]
pub(super) struct Commands {
    pub(super) variant: Variant,
    pub(super) mode: Mode,
    pub(super) families: Vec<Family>,
}

impl Commands {
    /// Lists everything except relays, which no command lists.
    pub(super) fn dump(&self) -> Result<Dump, String> {
        let mut dump = Dump::default();
        for family in &self.families {
            *rules(&mut dump, *family) = run(&self.iptables(*family, "save"), &[], None)?;
        }
        if self.mode == Mode::Nftables {
            dump.nft = run("nft", &["list", "ruleset"], None)?;
            if self.variant == Variant::Legacy {
                dump.nft.insert_str(0, &self.older_tables());
            }
        }
        if self.mode == Mode::Ipvs {
            dump.sets = run("ipset", &["save"], None)?;
            dump.servers = run("ipvsadm", &["-Sn"], None)?;
            dump.addresses = addresses(&run("ip", &["-o", "address", "show", "dev", DEVICE], None)?);
        }
        Ok(dump)
    }

    /// Returns empty tables in the place of iptables-legacy's, which no listing dates: the proxy's are younger.
    fn older_tables(&self) -> String {
        let mut all = String::new();
        for family in &self.families {
            let family = if *family == Family::V4 { "ip" } else { "ip6" };
            for table in TableName::ALL {
                let chains = table.built_in().iter();
                let chains = chains.map(|chain| {
                    let hook = chain.to_lowercase();
                    format!("\tchain {chain} {{\n\t\ttype filter hook {hook} priority 0; policy accept;\n\t}}\n")
                });
                all.push_str(&format!("table {family} {} {{\n{}}}\n", table.name(), chains.collect::<String>()));
            }
        }
        all
    }

    pub(super) fn replace(&self, texts: &[(Family, String)]) -> Result<(), String> {
        for (family, text) in texts {
            run(&self.iptables(*family, "restore"), &[], Some(text))?;
        }
        Ok(())
    }

    /// Flushes the affinity sets: services of the next cluster may have the same names.
    pub(super) fn forget_clients(&self) -> Result<(), String> {
        if self.mode != Mode::Nftables {
            return Ok(());
        }
        let listed = run("nft", &["list", "ruleset"], None)?;
        let ruleset = Ruleset::read(&listed).map_err(|error| error.to_string())?;
        let mut flush = String::new();
        for table in ruleset.tables.iter().filter(|table| table.name == TABLE) {
            let filled = table.sets.iter().filter(|set| set.flags.iter().any(|flag| flag == "timeout"));
            flush.extend(filled.map(|set| format!("flush set {} {TABLE} {}\n", table.family, set.name)));
        }
        if flush.is_empty() { Ok(()) } else { run("nft", &["-f", "-"], Some(&flush)).map(|_| ()) }
    }

    pub(super) fn replace_tables(&self, text: &str) -> Result<(), String> {
        let gone = self.families.iter().map(|family| {
            let name = if *family == Family::V4 { "ip" } else { "ip6" };
            format!("delete table {name} {TABLE}\n")
        });
        run("nft", &["-f", "-"], Some(&format!("{}{text}", gone.collect::<String>()))).map(|_| ())
    }

    pub(super) fn load_tables(&self, text: &str) -> Result<(), String> {
        run("nft", &["-f", "-"], Some(text)).map(|_| ())
    }

    /// Deletes and recreates the virtual servers; in between IPVS expires every connection (`expire_nodest_conn`).
    pub(super) fn restore_servers(&self, servers: &str) -> Result<(), String> {
        run("ipvsadm", &["-C"], None)?;
        until_forgotten()?;
        run("ipvsadm", &["-R"], Some(servers)).map(|_| ())
    }

    /// Returns the command of a family and variant, such as `ip6tables-nft-save`.
    fn iptables(&self, family: Family, what: &str) -> String {
        let command = if family == Family::V4 { "iptables" } else { "ip6tables" };
        let variant = match self.variant {
            Variant::Auto => "",
            Variant::Nft => "-nft",
            Variant::Legacy => "-legacy",
        };
        format!("{command}{variant}-{what}")
    }
}

pub(super) fn rules(dump: &mut Dump, family: Family) -> &mut String {
    match family {
        Family::V4 => &mut dump.v4,
        Family::V6 => &mut dump.v6,
    }
}

fn addresses(printed: &str) -> String {
    let line = |printed: &str| {
        let mut words = printed.split_whitespace().skip_while(|word| !["inet", "inet6"].contains(word));
        let address = words.nth(1)?;
        // Skips the link-local address.
        let own = !address.starts_with("fe80:");
        let deprecated = if words.any(|word| word == "deprecated") { " preferred_lft 0" } else { "" };
        own.then(|| format!("ip addr add {address} dev {DEVICE}{deprecated}\n"))
    };
    printed.lines().filter_map(line).collect()
}

/// The number of heading lines of `/proc/net/ip_vs_conn`.
const HEADINGS: usize = 1;

fn until_forgotten() -> Result<(), String> {
    // The kernel expires connections asynchronously.
    for _ in 0..1000 {
        let connections =
            std::fs::read_to_string("/proc/thread-self/net/ip_vs_conn").map_err(|error| error.to_string())?;
        if connections.lines().count() <= HEADINGS {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err("IPVS keeps connections of virtual servers that are gone".to_owned())
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn run(name: &str, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    let output =
        command::run(name, arguments, input, PATIENCE).map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn addresses_are_read_off_what_ip_prints() {
        let printed = "4: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\\       valid_lft forever preferred_lft forever\n\
            4: kube-ipvs0    inet6 fd00:10:96::1/128 scope global deprecated \\       valid_lft forever preferred_lft 0sec\n\
            4: kube-ipvs0    inet6 fe80::1/64 scope link \\       valid_lft forever preferred_lft forever\n";
        assert_eq!(
            addresses(printed),
            "ip addr add 10.96.0.1/32 dev kube-ipvs0\nip addr add fd00:10:96::1/128 dev kube-ipvs0 preferred_lft 0\n"
        );
    }
}
