//! What can be wrong with an object that parsed.

use std::net::IpAddr;

/// An object that this cluster cannot have. The message names the field and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A field's value does not fit.
    #[error("{object}: {field}: {problem}")]
    Field {
        /// `kind/namespace/name`.
        object: String,
        /// Path of the field, as in `spec.clusterIP`.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// Two objects claim one address.
    #[error("{object}: {field}: {address} already belongs to {owner}")]
    AddressTaken {
        /// Who asked.
        object: String,
        /// Path of the field.
        field: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        owner: String,
    },
    /// Two services claim one node port.
    #[error("{object}: {field}: node port {port}/{protocol} already belongs to {owner}")]
    PortTaken {
        /// Who asked.
        object: String,
        /// Path of the field.
        field: String,
        /// The port.
        port: u16,
        /// Its protocol.
        protocol: String,
        /// Who has it.
        owner: String,
    },
    /// A range has nothing left.
    #[error("{object}: {field}: no free value left in {range}")]
    Exhausted {
        /// Who asked.
        object: String,
        /// Path of the field.
        field: String,
        /// The range.
        range: String,
    },
    /// A reference to an object that is not there.
    #[error("there is no {object} (there is: {known})")]
    Missing {
        /// What was asked for.
        object: String,
        /// What exists of that kind.
        known: String,
    },
}

impl ObjectError {
    /// The path of the field, as in `spec.clusterIP`, if it is about one.
    pub fn path(&self) -> Option<&str> {
        match self {
            ObjectError::Field { field, .. }
            | ObjectError::AddressTaken { field, .. }
            | ObjectError::PortTaken { field, .. }
            | ObjectError::Exhausted { field, .. } => Some(field),
            ObjectError::Missing { .. } => None,
        }
    }

    /// Shorthand for [`ObjectError::Field`].
    pub fn field(object: impl Into<String>, field: impl Into<String>, problem: impl Into<String>) -> Self {
        ObjectError::Field { object: object.into(), field: field.into(), problem: problem.into() }
    }
}
