//! Protobuf's wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::ProtobufError;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

pub(super) fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3 | VARINT);
    put_varint(out, value);
}

/// Writes the key and the length of a field whose `length` bytes follow.
pub(super) fn put_length(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | LENGTH);
    put_varint(out, length as u64);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A fixed-size number; Kubernetes' messages have none.
    Fixed,
}

/// Yields the fields of a message; ends after an error.
pub(super) struct WireFields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u64, WireValue<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> WireFields<'a> {
    fn field(&mut self) -> Result<(u64, WireValue<'a>), ProtobufError> {
        let key = self.varint()?;
        let value = match key & 7 {
            VARINT => WireValue::Varint(self.varint()?),
            LENGTH => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                WireValue::Bytes(self.take(length)?)
            }
            FIXED64 => self.take(8).map(|_| WireValue::Fixed)?,
            FIXED32 => self.take(4).map(|_| WireValue::Fixed)?,
            _ => return Err(ProtobufError::WireType { field: key >> 3 }),
        };
        Ok((key >> 3, value))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first().ok_or(ProtobufError::Truncated)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Varint)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_round_trips() {
        for value in [0, 1, 127, 128, 300, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, 17, value);
            put_bytes(&mut out, 2, b"ab");
            let fields: Vec<_> = WireFields(&out).map(Result::unwrap).collect();
            assert_eq!(fields, [(17, WireValue::Varint(value)), (2, WireValue::Bytes(b"ab"))]);
        }
    }

    #[test]
    fn broken_fields_are_errors() {
        for (bytes, error) in [
            (&b"\x08"[..], ProtobufError::Truncated),
            (b"\x0a\x05ab", ProtobufError::Truncated),
            (b"\x09abc", ProtobufError::Truncated),
            (b"\x0b", ProtobufError::WireType { field: 1 }),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ProtobufError::Varint),
        ] {
            let fields: Vec<_> = WireFields(bytes).collect();
            assert_eq!(fields, [Err(error)], "{bytes:?}");
        }
    }
}
