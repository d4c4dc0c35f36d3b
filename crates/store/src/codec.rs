//! How things are written down: JSON texts with the words of the domain, written from and read into the types of `agent`.
//! Reading is strict: what is unknown, missing or twice makes no sense, and says so instead of being guessed.

mod message;
mod record;
mod state;
#[cfg(test)]
mod tests;

use agent::journal::{AgentRecord, AgentState, Record, StoredLedger, StoredPermissions};
use serde::{Deserialize, Serialize};

use crate::digest;

/// Why a text makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CodecFault(String);

impl CodecFault {
    fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// The text of a record; its kind is kept beside it.
pub(crate) fn encode_record(record: &Record) -> Result<String, CodecFault> {
    record::encode(record)
}

/// The record of a kind and a text.
pub(crate) fn decode_record(kind: &str, text: &str) -> Result<Record, CodecFault> {
    record::decode(kind, text)
}

/// What an agent is made from, but for its rights: they change, and are kept beside it.
pub(crate) fn encode_agent(record: &AgentRecord) -> Result<String, CodecFault> {
    encode(&state::AgentBody::encode(record))
}

/// What an agent is made from, with the name and the rights it has now.
pub(crate) fn decode_agent(text: &str, id: &str, permissions: &str) -> Result<AgentRecord, CodecFault> {
    let mut record = decode::<state::AgentBody<'_>>(text)?.decode(decode_permissions(permissions)?)?;
    record.id = state::decode_agent_id(id)?;
    Ok(record)
}

/// The text of rights.
pub(crate) fn encode_permissions(permissions: &StoredPermissions) -> Result<String, CodecFault> {
    encode(&state::PermissionsBody::encode(permissions))
}

/// Rights of a text.
pub(crate) fn decode_permissions(text: &str) -> Result<StoredPermissions, CodecFault> {
    decode::<state::PermissionsBody<'_>>(text)?.decode()
}

/// The text of a state, with its seal.
pub(crate) fn encode_state(state: &AgentState) -> Result<String, CodecFault> {
    Ok(append_checksum(encode(&state::StateBody::encode(state))?))
}

/// The state of a sealed text.
pub(crate) fn decode_state(text: &str) -> Result<AgentState, CodecFault> {
    decode::<state::StateBody>(strip_checksum(text)?)?.decode()
}

/// The text of a ledger, with its seal.
pub(crate) fn encode_ledger(ledger: &StoredLedger) -> Result<String, CodecFault> {
    Ok(append_checksum(encode(&state::LedgerBody::encode(ledger))?))
}

/// The ledger of a sealed text.
pub(crate) fn decode_ledger(text: &str) -> Result<StoredLedger, CodecFault> {
    Ok(decode::<state::LedgerBody>(strip_checksum(text)?)?.decode())
}

/// Digits of a sum at the end of a sealed text.
const CHECKSUM_CHARS: usize = 16;

/// A text that is overwritten again and again has its sum at its end: a digit that a disk has turned into another one
/// would still be a number.
fn append_checksum(mut text: String) -> String {
    let digest = digest::digest_text(&text);
    text.push_str(&digest::hex(&digest[..CHECKSUM_CHARS / 2]));
    text
}

fn strip_checksum(text: &str) -> Result<&str, CodecFault> {
    let end = text.len().checked_sub(CHECKSUM_CHARS).filter(|end| text.is_char_boundary(*end));
    let (text, seal) = text.split_at(end.ok_or_else(|| CodecFault::new("it has no seal"))?);
    let digest = digest::digest_text(text);
    let is_whole = digest::hex(&digest[..CHECKSUM_CHARS / 2]) == seal;
    if is_whole { Ok(text) } else { Err(CodecFault::new("its seal is broken")) }
}

/// The name of an agent of a text.
pub(crate) fn decode_agent_id(text: &str) -> Result<agent::AgentId, CodecFault> {
    state::decode_agent_id(text)
}

fn encode(body: &impl Serialize) -> Result<String, CodecFault> {
    serde_json::to_string(body).map_err(CodecFault::new)
}

fn decode<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, CodecFault> {
    serde_json::from_str(text).map_err(CodecFault::new)
}
