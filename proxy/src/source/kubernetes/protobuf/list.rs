//! Reads a list object by object, as the bytes arrive.

use prost::Message;
use prost::bytes::Bytes;

use super::super::super::object::ObjectKind;
use super::super::answer::AnswerBody;
use super::super::list::{ListMeta, expect_list};
use super::super::reflect::Failure;
use super::{MAGIC, meta, nonsense};

/// In bytes: the largest type, metadata or message of a Status.
const LARGEST_PREFACE: u64 = 64 << 10;

pub(in super::super) struct ListReader {
    body: AnswerBody,
    /// Where the list ends within the answer.
    end: u64,
    metadata: ListMeta,
}

impl ListReader {
    /// Reads up to the list's first field. Fails unless the answer is a list of the kind.
    pub(in super::super) async fn open(kind: ObjectKind, mut body: AnswerBody) -> Result<ListReader, Failure> {
        if body.take(MAGIC.len() as u64).await? != MAGIC {
            return Err(Failure::Nonsense("it lacks the magic number".to_owned()));
        }
        let mut is = meta::TypeMeta::default();
        loop {
            match field(&mut body).await? {
                // Go's encoder writes fields in the order of their numbers: the type comes first.
                (1, Some(length)) => {
                    is = meta::TypeMeta::decode(preface(&mut body, length).await?).map_err(nonsense)?
                }
                (2, Some(length)) => {
                    let said = match is.kind.as_str() {
                        "Status" => meta::Status::decode(preface(&mut body, length).await?).ok().map(|s| s.message),
                        _ => None,
                    };
                    expect_list(kind, (&is.api_version, &is.kind), said.as_deref())?;
                    let end = body.taken().saturating_add(length);
                    return Ok(ListReader { body, end, metadata: ListMeta::default() });
                }
                (_, Some(length)) => body.skip(length).await?,
                (_, None) => {}
            }
        }
    }

    pub(in super::super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while self.body.taken() < self.end {
            let (number, length) = field(&mut self.body).await?;
            let Some(length) = length else { continue };
            if self.body.taken().saturating_add(length) > self.end {
                return Err(Failure::Nonsense("an object goes on past the end of its list".to_owned()));
            }
            match number {
                1 => {
                    let metadata = preface(&mut self.body, length).await?;
                    let meta::ListMeta { resource_version, continue_token } =
                        meta::ListMeta::decode(metadata).map_err(nonsense)?;
                    self.metadata =
                        ListMeta { resource_version: Some(resource_version), continue_token: Some(continue_token) };
                }
                2 => return Ok(Some(self.body.take(length).await?)),
                _ => self.body.skip(length).await?,
            }
        }
        Ok(None)
    }

    /// Fails unless the answer is complete.
    pub(in super::super) async fn finish(mut self) -> Result<ListMeta, Failure> {
        if self.body.taken() != self.end {
            return Err(Failure::Nonsense("a field goes on past the end of its list".to_owned()));
        }
        self.body.drain().await?;
        Ok(self.metadata)
    }
}

async fn preface(body: &mut AnswerBody, length: u64) -> Result<Bytes, Failure> {
    if length > LARGEST_PREFACE {
        return Err(Failure::TooLarge(format!("metadata of {length} bytes")));
    }
    body.take(length).await
}

/// Returns the number of the next field, and its length if it has one. Skips numbers.
async fn field(body: &mut AnswerBody) -> Result<(u64, Option<u64>), Failure> {
    let key = varint(body).await?;
    let length = match key & 7 {
        0 => {
            varint(body).await?;
            None
        }
        1 => {
            body.skip(8).await?;
            None
        }
        2 => Some(varint(body).await?),
        5 => {
            body.skip(4).await?;
            None
        }
        other => return Err(Failure::Nonsense(format!("a protobuf field of wire type {other}"))),
    };
    Ok((key >> 3, length))
}

async fn varint(body: &mut AnswerBody) -> Result<u64, Failure> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = body.byte().await?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Failure::Nonsense("a protobuf number of more than ten bytes".to_owned()))
}
