/// An object that the store rejects although it parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A field's value does not fit, or another object has the value.
    #[error("{object}: {field}: {problem}")]
    Field {
        /// `kind/namespace/name`.
        object: String,
        /// Path of the field, as in `spec.clusterIP`.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A range of addresses or ports has no free value.
    #[error("{object}: {field}: no free value left in {range}")]
    Exhausted {
        /// `kind/namespace/name`.
        object: String,
        /// Path of the field.
        field: String,
        /// The range.
        range: String,
    },
    /// No object of this name exists.
    #[error("there is no {object} (there is: {known})")]
    Missing {
        /// `kind/namespace/name`.
        object: String,
        /// The names of the objects of this kind.
        known: String,
    },
}

impl ObjectError {
    /// The path of the affected field.
    pub fn path(&self) -> Option<&str> {
        match self {
            ObjectError::Field { field, .. } | ObjectError::Exhausted { field, .. } => Some(field),
            ObjectError::Missing { .. } => None,
        }
    }

    /// Shorthand for [`ObjectError::Field`].
    pub fn field(object: impl Into<String>, field: impl Into<String>, problem: impl Into<String>) -> Self {
        ObjectError::Field { object: object.into(), field: field.into(), problem: problem.into() }
    }
}
