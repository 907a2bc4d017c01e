//! Expressions: what a rule loads from a packet, and what it compares that with.

use super::{DataType, Element};

/// What two values make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// `&`.
    And,
    /// `|`.
    Or,
    /// `^`.
    Xor,
    /// `<<`.
    Left,
    /// `>>`.
    Right,
}

impl Binary {
    pub(crate) fn apply(self, left: u128, right: u128) -> u128 {
        let bits = u32::try_from(right).unwrap_or(u32::MAX);
        match self {
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::Left => left.checked_shl(bits).unwrap_or(0),
            Binary::Right => left.checked_shr(bits).unwrap_or(0),
        }
    }
}

/// An expression. Literals are kept as they stand; what they mean follows from what they are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A literal: a number, an address, a name.
    Word(String),
    /// A literal and a prefix length.
    Prefix(Box<Expr>, u8),
    /// From one literal to another.
    Range(Box<Expr>, Box<Expr>),
    /// Flags, `established,related`.
    Flags(Vec<Expr>),
    /// Parts of a key, ` . ` between them.
    Concat(Vec<Expr>),
    /// An anonymous set or map.
    Elements(Vec<Element>),
    /// `@name`.
    SetRef(String),
    /// A field of a header: `ip daddr`.
    Payload {
        /// The header.
        protocol: String,
        /// The field.
        field: String,
    },
    /// Bits of a header: `@th,16,16`.
    Raw {
        /// `ll`, `nh`, `th`.
        base: String,
        /// Bits from its beginning.
        offset: u32,
        /// Bits.
        length: u32,
    },
    /// `meta mark`.
    Meta(String),
    /// `ct state`, `ct original ip daddr`.
    Ct {
        /// `original`, `reply`.
        direction: Option<String>,
        /// What of the connection.
        key: String,
    },
    /// `fib daddr . iif type`.
    Fib {
        /// `saddr`, `daddr`, `mark`, `iif`, `oif`.
        flags: Vec<String>,
        /// `type`, `oif`, `oifname`.
        result: String,
    },
    /// `numgen random mod 3 offset 1`.
    Numgen {
        /// Drawn, or one more each time.
        random: bool,
        /// Below this.
        modulus: u32,
        /// Added.
        offset: u32,
    },
    /// `jhash ip saddr mod 2 seed 0x1`; without a key it is `symhash`.
    Hash {
        /// What is hashed.
        key: Option<Box<Expr>>,
        /// Below this.
        modulus: u32,
        /// `None`: the kernel drew one.
        seed: Option<u32>,
        /// Added.
        offset: u32,
    },
    /// Of two values.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// What a map has for a key.
    Map {
        /// The key.
        key: Box<Expr>,
        /// [`Expr::Elements`] or [`Expr::SetRef`].
        map: Box<Expr>,
    },
    /// Not modelled; its text.
    Unknown(String),
}

impl Expr {
    /// The parts of a concatenation; anything else is one part.
    #[must_use]
    pub fn parts(&self) -> &[Expr] {
        match self {
            Expr::Concat(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// What kind of value it has; none of literals.
    #[must_use]
    pub fn kind(&self) -> Option<DataType> {
        Some(match self {
            Expr::Payload { protocol, field } => DataType::of_payload(protocol, field)?,
            Expr::Raw { length, .. } => DataType::Integer(*length),
            Expr::Meta(key) => DataType::of_meta(key)?,
            Expr::Ct { key, .. } => DataType::of_ct(key)?,
            Expr::Fib { result, .. } => match result.as_str() {
                "type" => DataType::AddressType,
                "oif" => DataType::Interface,
                "oifname" => DataType::InterfaceName,
                _ => return None,
            },
            Expr::Numgen { .. } | Expr::Hash { .. } => DataType::Integer(32),
            Expr::Binary(_, left, _) => left.kind()?,
            _ => return None,
        })
    }
}
