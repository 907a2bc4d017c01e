//! The bytes of a state file: magic number, version, SHA-256 of the rest, and a protobuf message.
//!
//! A new field is compatible; anything else needs a new version, which older programs ignore.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use prost::bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Origin;
use super::objects::EncodedObjects;
use crate::source::object::ObjectKind;

const MAGIC: &[u8] = b"svcproxy-state\n";
const VERSION: u8 = 1;
const DIGEST: usize = 32;

#[derive(Clone, PartialEq, Message)]
struct StateMessage {
    #[prost(string, tag = "1")]
    node: String,
    #[prost(bytes = "vec", tag = "2")]
    cluster: Vec<u8>,
    /// Seconds since 1970.
    #[prost(int64, tag = "3")]
    confirmed: i64,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    nodes: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    services: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    endpoint_slices: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    service_cidrs: Vec<Bytes>,
}

impl StateMessage {
    fn of_kind(&mut self, kind: ObjectKind) -> &mut Vec<Bytes> {
        match kind {
            ObjectKind::Node => &mut self.nodes,
            ObjectKind::Service => &mut self.services,
            ObjectKind::EndpointSlice => &mut self.endpoint_slices,
            ObjectKind::ServiceCidr => &mut self.service_cidrs,
        }
    }
}

/// The content of a state file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SavedState {
    pub origin: Origin,
    /// When the API last said something; whole seconds.
    pub confirmed: SystemTime,
    pub objects: EncodedObjects,
    /// Objects that this program refuses.
    pub refused: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("it is no state file")]
    Foreign,
    #[error("its format has version {0}, and this program reads version {VERSION}")]
    Version(u8),
    #[error("its checksum is wrong: it is damaged or incomplete")]
    Checksum,
    #[error("it cannot be decoded: {0}")]
    Message(String),
}

pub(super) fn encode(state: &SavedState) -> Vec<u8> {
    let mut message = StateMessage {
        node: state.origin.node.clone(),
        cluster: state.origin.cluster.0.to_vec(),
        confirmed: seconds(state.confirmed),
        ..StateMessage::default()
    };
    for (id, bytes) in state.objects.iter() {
        message.of_kind(id.kind).push(bytes.clone());
    }
    let mut file = [MAGIC, &[VERSION], &[0; DIGEST]].concat();
    file.reserve(message.encoded_len());
    let head = file.len();
    // Fails only for lack of capacity, which a `Vec` does not have.
    let encoded = message.encode(&mut file);
    debug_assert!(encoded.is_ok(), "{encoded:?}");
    let digest = Sha256::digest(&file[head..]);
    file[head - DIGEST..head].copy_from_slice(&digest);
    file
}

/// The objects share the memory of the file.
pub(super) fn decode(file: Bytes) -> Result<SavedState, FormatError> {
    let rest = file.strip_prefix(MAGIC).ok_or(FormatError::Foreign)?;
    let (version, rest) = rest.split_first().ok_or(FormatError::Checksum)?;
    if *version != VERSION {
        return Err(FormatError::Version(*version));
    }
    let (digest, payload) = rest.split_at_checked(DIGEST).ok_or(FormatError::Checksum)?;
    if Sha256::digest(payload)[..] != *digest {
        return Err(FormatError::Checksum);
    }
    let wrong = |message: &str| FormatError::Message(message.to_owned());
    let mut message = StateMessage::decode(file.slice_ref(payload)).map_err(|error| wrong(&error.to_string()))?;
    let cluster = message.cluster.as_slice().try_into().map_err(|_| wrong("the cluster's hash has another length"))?;
    let (mut objects, mut refused) = (EncodedObjects::default(), 0);
    for kind in ObjectKind::ALL {
        for bytes in std::mem::take(message.of_kind(kind)) {
            refused += usize::from(!objects.add(kind, bytes));
        }
    }
    let origin = Origin { node: message.node, cluster: super::ClusterIdentity(cluster) };
    Ok(SavedState { origin, confirmed: time(message.confirmed), objects, refused })
}

/// Decodes the bytes as a file, and as the message of one. Returns whether a decoded state changes when it is encoded.
pub(super) fn fuzz(bytes: &[u8]) -> bool {
    let signed = [MAGIC, &[VERSION], &Sha256::digest(bytes), bytes].concat();
    let changes = |file: Vec<u8>| {
        let state = decode(file.into()).ok()?;
        let again = decode(encode(&state).into()).ok();
        Some(again != Some(SavedState { refused: 0, ..state }))
    };
    let (plain, signed) = (changes(bytes.to_vec()), changes(signed));
    plain.unwrap_or_default() || signed.unwrap_or_default()
}

fn seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// An impossible time is 1970.
fn time(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}
