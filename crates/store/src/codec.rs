//! JSON codec of records, agents, permissions, states and ledgers. Decoding is strict: an unknown, missing or duplicate
//! field is an error, never a guess.

mod approval;
mod message;
mod record;
mod state;
#[cfg(test)]
mod tests;

use agent::journal::{AgentRecord, AgentState, Record, StoredLedger, StoredPermissions};
use serde::{Deserialize, Serialize};

use crate::digest;

/// Why a text cannot be decoded or a value not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CodecFault(String);

impl CodecFault {
    fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Encodes a record's body; the caller stores its kind in a column of its own.
pub(crate) fn encode_record(record: &Record) -> Result<String, CodecFault> {
    record::encode(record)
}

/// Decodes a record from its kind and its body.
pub(crate) fn decode_record(kind: &str, text: &str) -> Result<Record, CodecFault> {
    record::decode(kind, text)
}

/// Encodes an agent's record without its permissions: they change, and have a column of their own.
pub(crate) fn encode_agent(record: &AgentRecord) -> Result<String, CodecFault> {
    encode(&state::AgentBody::encode(record))
}

/// Decodes an agent's record with its current id and permissions.
pub(crate) fn decode_agent(text: &str, id: &str, permissions: &str) -> Result<AgentRecord, CodecFault> {
    let mut record = decode::<state::AgentBody<'_>>(text)?.decode(decode_permissions(permissions)?)?;
    record.id = state::decode_agent_id(id)?;
    Ok(record)
}

/// Encodes stored permissions.
pub(crate) fn encode_permissions(permissions: &StoredPermissions) -> Result<String, CodecFault> {
    encode(&state::PermissionsBody::encode(permissions))
}

/// Decodes stored permissions.
pub(crate) fn decode_permissions(text: &str) -> Result<StoredPermissions, CodecFault> {
    decode::<state::PermissionsBody<'_>>(text)?.decode()
}

/// Encodes an agent's state and appends its checksum.
pub(crate) fn encode_state(state: &AgentState) -> Result<String, CodecFault> {
    Ok(append_checksum(encode(&state::StateBody::encode(state))?))
}

/// Verifies the checksum and decodes an agent's state.
pub(crate) fn decode_state(text: &str) -> Result<AgentState, CodecFault> {
    decode::<state::StateBody>(strip_checksum(text)?)?.decode()
}

/// Encodes a ledger and appends its checksum.
pub(crate) fn encode_ledger(ledger: &StoredLedger) -> Result<String, CodecFault> {
    Ok(append_checksum(encode(&state::LedgerBody::encode(ledger))?))
}

/// Verifies the checksum and decodes a ledger.
pub(crate) fn decode_ledger(text: &str) -> Result<StoredLedger, CodecFault> {
    Ok(decode::<state::LedgerBody>(strip_checksum(text)?)?.decode())
}

/// Hexadecimal digits of the checksum at the end of a text.
const CHECKSUM_CHARS: usize = 16;

/// Appends a checksum. States and ledgers are overwritten in place and are in no hash chain; without a checksum, a
/// digit that the disk corrupted would still decode as a number.
fn append_checksum(mut text: String) -> String {
    let digest = digest::digest_text(&text);
    text.push_str(&digest::hex(&digest[..CHECKSUM_CHARS / 2]));
    text
}

fn strip_checksum(text: &str) -> Result<&str, CodecFault> {
    let end = text.len().checked_sub(CHECKSUM_CHARS).filter(|end| text.is_char_boundary(*end));
    let (text, checksum) = text.split_at(end.ok_or_else(|| CodecFault::new("checksum missing"))?);
    let digest = digest::digest_text(text);
    let is_intact = digest::hex(&digest[..CHECKSUM_CHARS / 2]) == checksum;
    if is_intact { Ok(text) } else { Err(CodecFault::new("checksum mismatch")) }
}

/// Decodes an agent id.
pub(crate) fn decode_agent_id(text: &str) -> Result<agent::AgentId, CodecFault> {
    state::decode_agent_id(text)
}

fn encode(body: &impl Serialize) -> Result<String, CodecFault> {
    serde_json::to_string(body).map_err(CodecFault::new)
}

fn decode<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, CodecFault> {
    serde_json::from_str(text).map_err(CodecFault::new)
}
