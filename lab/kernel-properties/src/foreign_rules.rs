//! Rules of CNIs, firewalls and agents beside the proxy's. The oracle promises nothing for them; kernel and simulator
//! must agree.

use svclab_oracle::World;
use svclab_properties::sweep::mixed;

/// Rules for `iptables-restore`, with [`Placeholders`] for addresses.
#[derive(Debug, Clone, Copy)]
pub struct ForeignProgram {
    pub name: &'static str,
    rules: &'static str,
}

const fn program(name: &'static str, rules: &'static str) -> ForeignProgram {
    ForeignProgram { name, rules }
}

/// Programs that drop packets accept ICMP: neighbour discovery also passes a bridge's rules.
const ALL: [ForeignProgram; 19] = [
    program(
        "an agent masquerades what leaves the pods' range",
        "*nat\n:MASQ-AGENT - [0:0]\n\
         -A POSTROUTING -m comment --comment \"not within the cluster\" -m addrtype ! --dst-type LOCAL -j MASQ-AGENT\n\
         -A MASQ-AGENT -d PODS -j RETURN\n-A MASQ-AGENT -j MASQUERADE --random-fully\nCOMMIT\n",
    ),
    program(
        "a network policy on a bridge lets nodes in",
        "*filter\n:POLICY - [0:0]\n-I FORWARD -d PODS -p tcp -m physdev --physdev-is-bridged -j POLICY\n\
         -A POLICY -s NODES -j RETURN\n-A POLICY -m mark ! --mark 0x10000/0x10000 -j REJECT\nCOMMIT\n",
    ),
    program(
        "a host firewall with a policy of DROP",
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A INPUT -p ICMP -j ACCEPT\n-A INPUT -p tcp -m multiport --dports 8080:8082,30000:30021 -j ACCEPT\n\
         -A INPUT -s NODES -p udp -m udp --dport 8080:8082 -j ACCEPT\n-A INPUT -p tcp -j REJECT --reject-with tcp-reset\nCOMMIT\n",
    ),
    program(
        "a firewall forwards what was translated",
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n-A FORWARD -p ICMP -j ACCEPT\n\
         -A FORWARD -s PODS -j REJECT --reject-with PROHIBITED\nCOMMIT\n",
    ),
    program(
        "a jail for a client",
        "*filter\n:JAIL - [0:0]\n-I INPUT -p tcp -m multiport --dports 30000:30100 -j JAIL\n-I FORWARD -p udp -j JAIL\n\
         -A JAIL -m iprange --src-range CLIENT-CLIENT -j REJECT\n-A JAIL -j RETURN\nCOMMIT\n",
    ),
    program(
        "marks of packets and connections",
        "*mangle\n-A PREROUTING -s CLIENT -j MARK --set-xmark 0x1/0x1\n\
         -A PREROUTING -m mark --mark 0x1/0x1 -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff\nCOMMIT\n\
         *filter\n-I FORWARD -p tcp -m connmark --mark 0x1/0xff -m conntrack --ctdir ORIGINAL -j DROP\nCOMMIT\n",
    ),
    program(
        "a transparent proxy on the node",
        "*nat\n-I PREROUTING -i eth0 -d SERVICES -p tcp -j REDIRECT --to-ports 8080\nCOMMIT\n",
    ),
    program(
        "datagrams to services are not tracked",
        "*raw\n-A PREROUTING -d SERVICES -p udp -j CT --notrack\n-A OUTPUT -d SERVICES -p udp -j CT --notrack\nCOMMIT\n",
    ),
    program(
        "what pods send out has the node's address",
        "*nat\n-I POSTROUTING -s PODS -o eth0 -p tcp -j SNAT --to-source NODE\nCOMMIT\n",
    ),
    program(
        "another balancer takes a quarter",
        "*nat\n:QUARTER - [0:0]\n-I PREROUTING -d SERVICES -j QUARTER\n-I OUTPUT -d SERVICES -j QUARTER\n\
         -A QUARTER -p tcp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination END:8081\n\
         -A QUARTER -p udp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination END:8082\nCOMMIT\n",
    ),
    program("strict reverse paths", "*raw\n-A PREROUTING -m rpfilter --validmark --invert -j DROP\nCOMMIT\n"),
    program(
        "a gate that is gone to",
        "*filter\n:GATE - [0:0]\n-I FORWARD -d PODS -g GATE\n-A GATE -p udp -m udp --sport 1024:65535 --dport 8081:8082 -j ACCEPT\n\
         -A GATE ! -s PODS -p udp -j DROP\n-A GATE -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN --dport 8081 -j DROP\nCOMMIT\n",
    ),
    // plugins/meta/portmap/portmap_iptables.go of the CNI plugins.
    program(
        "a pod's host ports",
        "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n:CNI-HOSTPORT-SETMARK - [0:0]\n:CNI-DN-7b1b2d0c4c1e - [0:0]\n\
         -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
         -A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n\
         -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8081,30001,30003 -j CNI-DN-7b1b2d0c4c1e\n\
         -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n\
         -A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000\n\
         -A CNI-DN-7b1b2d0c4c1e -s PODS -p tcp -m tcp --dport 30001 -j CNI-HOSTPORT-SETMARK\n\
         -A CNI-DN-7b1b2d0c4c1e -s LOOPBACK -p tcp -m tcp --dport 30001 -j CNI-HOSTPORT-SETMARK\n\
         -A CNI-DN-7b1b2d0c4c1e -p tcp -j DNAT --to-destination END:8081\nCOMMIT\n",
    ),
    // docs.docker.com/engine/network/packet-filtering-firewalls
    program(
        "docker",
        "*nat\n:DOCKER - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n\
         -A OUTPUT ! -d LOOPBACK -m addrtype --dst-type LOCAL -j DOCKER\n-A POSTROUTING -s CONTAINERS ! -o docker0 -j MASQUERADE\n\
         -A DOCKER -i docker0 -j RETURN\n-A DOCKER ! -i docker0 -p tcp -m tcp --dport 30005 -j DNAT --to-destination END:8082\nCOMMIT\n\
         *filter\n:FORWARD DROP [0:0]\n:DOCKER - [0:0]\n:DOCKER-USER - [0:0]\n:DOCKER-FORWARD - [0:0]\n:DOCKER-CT - [0:0]\n\
         -A FORWARD -p ICMP -j ACCEPT\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-FORWARD\n\
         -A DOCKER-FORWARD -j DOCKER-CT\n-A DOCKER-FORWARD -o docker0 -j DOCKER\n-A DOCKER-FORWARD -i docker0 -j ACCEPT\n\
         -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A DOCKER-USER -s CLIENT -j RETURN\nCOMMIT\n",
    ),
    // firewalld with its iptables backend.
    program(
        "firewalld",
        "*filter\n:INPUT_ZONES - [0:0]\n:IN_public - [0:0]\n\
         -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j INPUT_ZONES\n\
         -A INPUT -m conntrack --ctstate INVALID -j DROP\n-A INPUT -j REJECT --reject-with PROHIBITED\n\
         -A INPUT_ZONES -i eth0 -g IN_public\n-A INPUT_ZONES -g IN_public\n-A IN_public -p ICMP -j ACCEPT\n\
         -A IN_public -p tcp -m tcp --dport 30000:30009 -m conntrack --ctstate NEW,UNTRACKED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n-A FORWARD -i lo -j ACCEPT\n-A FORWARD -p ICMP -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate INVALID -j DROP\n-A FORWARD -j REJECT --reject-with PROHIBITED\nCOMMIT\n",
    ),
    // kubernetes.io/docs/tasks/administer-cluster/nodelocaldns
    program(
        "NodeLocal DNS",
        "*raw\n-A PREROUTING -d CACHE -p udp -m udp --dport 53 -j CT --notrack\n-A PREROUTING -d SERVICES -p udp -m udp --dport 53 -j CT --notrack\n\
         -A OUTPUT -s CACHE -p udp -m udp --sport 53 -j CT --notrack\n-A OUTPUT -d SERVICES -p tcp -m tcp --dport 8080 -j CT --notrack\nCOMMIT\n\
         *filter\n-A INPUT -d CACHE -p udp -m udp --dport 53 -j ACCEPT\n-A OUTPUT -s CACHE -p udp -m udp --sport 53 -j ACCEPT\nCOMMIT\n",
    ),
    // Felix's chains, with IptablesMarkMask 0xffff0000.
    program(
        "Calico",
        "*mangle\n:cali-PREROUTING - [0:0]\n-A PREROUTING -j cali-PREROUTING\n\
         -A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT\nCOMMIT\n\
         *nat\n:cali-POSTROUTING - [0:0]\n:cali-nat-outgoing - [0:0]\n-I POSTROUTING -j cali-POSTROUTING\n-A cali-POSTROUTING -j cali-nat-outgoing\n\
         -A cali-nat-outgoing -s PODS ! -d PODS -j MASQUERADE --random-fully\nCOMMIT\n\
         *filter\n:cali-FORWARD - [0:0]\n:cali-from-wl - [0:0]\n-I FORWARD -j cali-FORWARD\n\
         -A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT\n-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000\n-A cali-FORWARD -i veth+ -j cali-from-wl\n\
         -A cali-from-wl -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A cali-from-wl -m conntrack --ctstate INVALID -j DROP\n\
         -A cali-from-wl -p udp -m multiport --dports 4789,8181 -j DROP\n-A cali-from-wl -p tcp -m tcp --dport 8082 -j DROP\n\
         -A cali-from-wl -j MARK --set-xmark 0x10000/0x10000\nCOMMIT\n",
    ),
    // Cilium's agent beside a kube-proxy that it does not replace.
    program(
        "Cilium",
        "*raw\n:CILIUM_PRE_raw - [0:0]\n-A PREROUTING -j CILIUM_PRE_raw\n-A CILIUM_PRE_raw -m mark --mark 0x200/0xf00 -j CT --notrack\nCOMMIT\n\
         *nat\n:CILIUM_POST_nat - [0:0]\n-I POSTROUTING -j CILIUM_POST_nat\n-A CILIUM_POST_nat -s PODS ! -d PODS ! -o cilium_+ -j MASQUERADE\nCOMMIT\n\
         *filter\n:CILIUM_FORWARD - [0:0]\n:CILIUM_OUTPUT - [0:0]\n-I FORWARD -j CILIUM_FORWARD\n-I OUTPUT -j CILIUM_OUTPUT\n\
         -A CILIUM_FORWARD -o cilium_host -j ACCEPT\n-A CILIUM_FORWARD -i veth+ -j ACCEPT\n-A CILIUM_FORWARD -i cilium_net -j ACCEPT\n\
         -A CILIUM_OUTPUT -m mark ! --mark 0xe00/0xf00 -m comment --comment \"cilium: host->any mark as from host\" -j MARK --set-xmark 0xc00/0xf00\nCOMMIT\n",
    ),
    program(
        "a network policy of one pod",
        "*filter\n:NWPLCY - [0:0]\n-I FORWARD -d BACKEND -m conntrack --ctstate NEW -j NWPLCY\n-I OUTPUT -d BACKEND -m conntrack --ctstate NEW -j NWPLCY\n\
         -A NWPLCY -s NODES -j RETURN\n-A NWPLCY -s PODS -p tcp -m tcp --dport 8080:8081 -j MARK --set-xmark 0x20000/0x20000\n\
         -A NWPLCY -m mark ! --mark 0x20000/0x20000 -j DROP\nCOMMIT\n",
    ),
];

pub(crate) struct Placeholders([(&'static str, String); 12]);

impl Placeholders {
    pub(crate) fn new(world: &World, node: &str, v4: bool) -> Option<Placeholders> {
        let of_family = |addresses: &[std::net::IpAddr]| addresses.iter().find(|one| one.is_ipv4() == v4).copied();
        let own = world.nodes.iter().find(|place| place.name == node)?;
        let pod = world.pods.iter().find(|pod| !pod.host_network)?;
        let end = of_family(&pod.addresses)?;
        let either = |four: &str, six: &str| if v4 { four.to_owned() } else { six.to_owned() };
        Some(Placeholders([
            ("PODS", either("10.244.0.0/16", "fd00:10:244::/56")),
            ("NODES", either("172.18.0.0/28", "fd00:172:18::/124")),
            ("SERVICES", either("10.96.0.0/16", "fd00:10:96::/112")),
            ("CLIENT", of_family(&world.clients.first()?.addresses)?.to_string()),
            ("PROHIBITED", either("icmp-host-prohibited", "icmp6-adm-prohibited")),
            ("ICMP", either("icmp", "ipv6-icmp")),
            ("LOOPBACK", either("127.0.0.0/8", "::1/128")),
            ("CONTAINERS", either("172.17.0.0/16", "fd00:172:17::/64")),
            ("CACHE", either("169.254.20.10/32", "fd00::14:a/128")),
            ("BACKEND", end.to_string()),
            ("END", if v4 { end.to_string() } else { format!("[{end}]") }),
            ("NODE", of_family(&own.addresses)?.to_string()),
        ]))
    }

    /// Placeholders that other placeholders contain must come later.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (word, address)| text.replace(word, address))
    }
}

pub fn some(salt: u64) -> Vec<ForeignProgram> {
    let draw = mixed(salt ^ 0x6f74_6865_7273);
    let count = 1 + draw % 3;
    let mut programs: Vec<ForeignProgram> = Vec::new();
    for step in 0..count {
        let program = ALL[usize::try_from(draw >> (8 * (step + 1)) & 0xff).unwrap_or_default() % ALL.len()];
        if !programs.iter().any(|other| other.name == program.name) {
            programs.push(program);
        }
    }
    programs
}

/// Returns `found` with the programs' rules; `None` if the node lacks the family.
pub fn beside(found: &str, programs: &[ForeignProgram], world: &World, node: &str, v4: bool) -> Option<String> {
    let placeholders = Placeholders::new(world, node, v4)?;
    let mut text = found.to_owned();
    for program in programs {
        for table in placeholders.fill(program.rules).split_inclusive("COMMIT\n") {
            let Some((header, lines)) = table.split_once('\n') else { continue };
            let lines = lines.trim_end_matches("COMMIT\n");
            text = match text.find(&format!("{header}\n")) {
                Some(start) => {
                    let end = text[start..].find("COMMIT\n").map_or(text.len(), |at| start + at);
                    format!("{}{lines}{}", &text[..end], &text[end..])
                }
                None => format!("{text}{header}\n{lines}COMMIT\n"),
            };
        }
    }
    Some(text)
}

/// Adds missing tables to `found`: `iptables-restore` clears only the tables of its input.
pub fn without(found: &str) -> String {
    let all = ["raw", "mangle", "nat", "filter"];
    let unused = all.into_iter().filter(|table| !found.contains(&format!("*{table}\n")));
    unused.fold(found.to_owned(), |text, table| format!("{text}*{table}\nCOMMIT\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed;

    #[test]
    fn rules_are_put_beside_those_that_are_there() {
        let world = testbed::ALL[2].recipe().build().world;
        let found = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n";
        let text = beside(found, &[ALL[4], ALL[9]], &world, "node-a", false).unwrap_or_default();
        assert_eq!(
            text,
            "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\n:JAIL - [0:0]\n\
             -I INPUT -p tcp -m multiport --dports 30000:30100 -j JAIL\n-I FORWARD -p udp -j JAIL\n\
             -A JAIL -m iprange --src-range fd00:172:18::64-fd00:172:18::64 -j REJECT\n-A JAIL -j RETURN\nCOMMIT\n\
             *nat\n:QUARTER - [0:0]\n-I PREROUTING -d fd00:10:96::/112 -j QUARTER\n-I OUTPUT -d fd00:10:96::/112 -j QUARTER\n\
             -A QUARTER -p tcp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination [fd00:10:244:1::a]:8081\n\
             -A QUARTER -p udp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination [fd00:10:244:1::a]:8082\n\
             COMMIT\n"
        );
        let names: std::collections::BTreeSet<&str> = (0..300).flat_map(some).map(|program| program.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
