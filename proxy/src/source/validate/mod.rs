//! Checks that the API server would accept an object, adds the API's defaults, and normalises addresses and networks.
//!
//! The rules are from the field descriptions of the API reference. Afterwards every string that can reach a kernel rule
//! (names, namespaces, port names, protocols, addresses, networks, zones, node names) consists of letters, digits, and
//! `-._:/`.
//!
//! A fault has the smallest possible effect: an invalid endpoint, port or address is removed, and so is an invalid
//! field, for example one of a newer API. The removed value is logged. The object is rejected only if it would
//! otherwise be a different object, or accept more callers.

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

/// Faults listed per object; a generated object may have thousands.
const REPORTED: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Path of the field.
    pub field: String,
    pub message: String,
}

impl Finding {
    /// Marks the fault as one of an ignored value.
    pub(super) fn left_out(self) -> Finding {
        Finding { message: format!("{}; left out of account", self.message), ..self }
    }
}

/// The faults of one object, and its ignored values.
#[derive(Debug, Default)]
pub(super) struct Findings {
    reported: Vec<Finding>,
    untold: usize,
    remarks: Vec<Finding>,
    unremarked: usize,
}

impl Findings {
    /// The faults in order; the last one counts those that are not listed.
    pub(super) fn into_vec(mut self) -> Vec<Finding> {
        if self.untold > 0 {
            self.reported
                .push(Finding { field: String::new(), message: format!("{} more faults in this object", self.untold) });
        }
        self.reported
    }

    /// The ignored values in order; the last one counts those that are not listed.
    pub(super) fn take_remarks(&mut self) -> Vec<Finding> {
        let mut remarks = std::mem::take(&mut self.remarks);
        if self.unremarked > 0 {
            let message = format!("{} more values in this object; left out of account", self.unremarked);
            remarks.push(Finding { field: String::new(), message });
        }
        remarks
    }

    /// Records an ignored value.
    fn remark(&mut self, field: impl Into<String>, message: impl std::fmt::Display) {
        if self.remarks.len() < REPORTED {
            self.remarks.push(Finding { field: field.into(), message: message.to_string() }.left_out());
        } else {
            self.unremarked += 1;
        }
    }

    /// Removes an invalid value that a proxy does not need.
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

    /// The checked value; `None` and a fault if it is invalid.
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
