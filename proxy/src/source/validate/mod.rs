//! Makes sure that an object is one that the Kubernetes API server would have let in, fills in the defaults that it
//! would have filled in, and brings addresses and networks into canonical form.
//!
//! The rules are the API's own, from the field descriptions in the API reference (Service v1, EndpointSlice v1
//! of discovery.k8s.io, Node v1, ServiceCIDR v1 of networking.k8s.io). After this module every string that can reach a kernel rule – names, namespaces,
//! port names, protocols, addresses, networks, zones, node names – is drawn from letters, digits, and `-._:/`.
//!
//! A fault costs no more than it must: an endpoint, a port or an address that is none costs itself, a value that is not
//! understood, such as one of a newer API, its field; all of them are taken out and remarked on. Only where the object would
//! be another one, or let in more callers, is it refused.

mod metadata;
mod node;
mod service;
mod service_address;
mod service_cidr;
mod service_policy;
mod slice;
#[cfg(test)]
mod tests;

use super::syntax::Checked;

pub(super) use node::node;
pub(super) use service::service;
pub(super) use service_cidr::service_cidr;
pub(super) use slice::slice;

/// As many faults of one object are reported one by one; a generated object can have thousands.
const REPORTED: usize = 8;

/// A fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Finding {
    /// The same, of something that the object is used without.
    pub(super) fn left_out(self) -> Finding {
        Finding { message: format!("{}; left out of account", self.message), ..self }
    }
}

/// The faults of one object, and what is left out of account in it.
#[derive(Debug, Default)]
pub(super) struct Findings {
    reported: Vec<Finding>,
    untold: usize,
    remarks: Vec<Finding>,
    unremarked: usize,
}

impl Findings {
    /// The faults, in the order found; the last one counts those left out.
    pub(super) fn into_vec(mut self) -> Vec<Finding> {
        if self.untold > 0 {
            self.reported
                .push(Finding { field: String::new(), message: format!("{} more faults in this object", self.untold) });
        }
        self.reported
    }

    /// What was taken out of the object, in the order found; the last one counts those left out.
    pub(super) fn take_remarks(&mut self) -> Vec<Finding> {
        let mut remarks = std::mem::take(&mut self.remarks);
        if self.unremarked > 0 {
            let message = format!("{} more values in this object; left out of account", self.unremarked);
            remarks.push(Finding { field: String::new(), message });
        }
        remarks
    }

    /// Something of the object is left out of account.
    fn remark(&mut self, field: impl Into<String>, message: impl std::fmt::Display) {
        if self.remarks.len() < REPORTED {
            self.remarks.push(Finding { field: field.into(), message: message.to_string() }.left_out());
        } else {
            self.unremarked += 1;
        }
    }

    /// Takes out a value that no proxy needs if it is not understood.
    fn needless<T>(&mut self, field: impl FnOnce() -> String, value: &mut Option<T>, rule: impl FnOnce(&T) -> Checked) {
        if let Some(Err(message)) = value.as_ref().map(rule) {
            *value = None;
            self.remark(field(), message);
        }
    }

    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.reported.len() == REPORTED {
            self.untold += 1;
            return;
        }
        self.reported.push(Finding { field: field.into(), message: message.into() });
    }

    /// The value of a check, or nothing and a fault.
    fn check<T>(&mut self, field: impl FnOnce() -> String, outcome: Checked<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(message) => {
                self.add(field(), message);
                None
            }
        }
    }
}
