use std::fmt::Write as _;

use super::desired::DesiredState;
use super::sets::SetId;
use super::steps::WEIGHT;
use crate::kernel::dummy::{AddressState, DEVICE};
use crate::kernel::ipset::SetMember;
use crate::kernel::ipvs::{FLAG_SCHED2, ServerKey, ServerSpec};
use crate::model::Family;

pub fn ipvsadm(desired: &DesiredState) -> String {
    let mut text = String::new();
    for key in desired.servers() {
        let Some(server) = desired.server(key) else { continue };
        let _ = writeln!(text, "{}", server_line(key, &server.spec));
        for destination in &server.destinations {
            let _ = writeln!(text, "-a {key} -r {destination} -m -w {WEIGHT}");
        }
    }
    text
}

fn server_line(key: &ServerKey, spec: &ServerSpec) -> String {
    let mut line = format!("-A {key} -s {}", spec.scheduler);
    if let Some(seconds) = spec.persistence {
        let _ = write!(line, " -p {seconds}");
    }
    if spec.flags & FLAG_SCHED2 != 0 {
        let _ = write!(line, " -b {}-port", spec.scheduler);
    }
    line
}

pub fn ipset(desired: &DesiredState, family: Family) -> String {
    let mut text = String::new();
    for set in SetId::ALL {
        let members: Vec<&SetMember> = desired.members(set).collect();
        let header = set.header(family, members.len());
        let _ = writeln!(text, "{header}");
        for member in members {
            let _ = writeln!(text, "add {} {member}", header.name);
        }
    }
    text
}

pub fn addresses(desired: &DesiredState) -> String {
    let line = |address: &std::net::IpAddr| {
        let length = Family::of(address).address_bits();
        let preferred = match AddressState::of_bound(address) {
            AddressState::Preferred => "",
            AddressState::Deprecated => " preferred_lft 0",
        };
        format!("ip addr add {address}/{length} dev {DEVICE}{preferred}\n")
    };
    desired.addresses().map(line).collect()
}
