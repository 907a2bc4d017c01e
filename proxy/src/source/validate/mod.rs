//! Checks that the API server would accept an object, adds the API's defaults, and normalises addresses and networks.
//!
//! The rules are from the API reference's field descriptions. Strings for kernel rules consist of letters, digits, and
//! `-._:/`.
//!
//! An invalid endpoint, port, address or field is removed and logged. The object is rejected only if it would otherwise
//! be a different object, or accept more callers.

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

/// Reported findings per object; a generated object may have thousands.
const REPORTED: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub field: String,
    pub message: String,
}

impl Finding {
    pub(super) fn ignored(self) -> Finding {
        Finding { message: format!("{}; ignored", self.message), ..self }
    }
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    reported: Vec<Finding>,
    unlisted_faults: usize,
    remarks: Vec<Finding>,
    unlisted_remarks: usize,
}

impl Findings {
    pub(super) fn into_vec(mut self) -> Vec<Finding> {
        if self.unlisted_faults > 0 {
            self.reported.push(Finding {
                field: String::new(),
                message: format!("{} more faults in this object", self.unlisted_faults),
            });
        }
        self.reported
    }

    pub(super) fn take_remarks(&mut self) -> Vec<Finding> {
        let mut remarks = std::mem::take(&mut self.remarks);
        if self.unlisted_remarks > 0 {
            let message = format!("{} more values in this object; ignored", self.unlisted_remarks);
            remarks.push(Finding { field: String::new(), message });
        }
        remarks
    }

    fn remark(&mut self, field: impl Into<String>, message: impl std::fmt::Display) {
        if self.remarks.len() < REPORTED {
            self.remarks.push(Finding { field: field.into(), message: message.to_string() }.ignored());
        } else {
            self.unlisted_remarks += 1;
        }
    }

    fn drop_if_invalid<T>(
        &mut self,
        field: impl FnOnce() -> String,
        value: &mut Option<T>,
        rule: impl FnOnce(&T) -> Checked,
    ) {
        if let Some(Err(message)) = value.as_ref().map(rule) {
            *value = None;
            self.remark(field(), message);
        }
    }

    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.reported.len() == REPORTED {
            self.unlisted_faults += 1;
            return;
        }
        self.reported.push(Finding { field: field.into(), message: message.into() });
    }

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
