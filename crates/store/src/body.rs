//! How things are written down: JSON texts with the words of the domain, written from and read into the types of `agent`.
//! Reading is strict: what is unknown, missing or twice makes no sense, and says so instead of being guessed.

mod message;
mod record;
mod state;
#[cfg(test)]
mod tests;

use agent::journal::{AgentRecord, AgentState, StoredLedger, StoredPermissions, Record};
use serde::{Deserialize, Serialize};

use crate::digest;

/// Why a text makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyFault(String);

impl BodyFault {
    fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// The text of a record; its kind is kept beside it.
pub(crate) fn write_record(record: &Record) -> Result<String, BodyFault> {
    record::write(record)
}

/// The record of a kind and a text.
pub(crate) fn read_record(kind: &str, text: &str) -> Result<Record, BodyFault> {
    record::read(kind, text)
}

/// What an agent is made from, but for its rights: they change, and are kept beside it.
pub(crate) fn write_agent(record: &AgentRecord) -> Result<String, BodyFault> {
    write(&state::AgentBody::of(record))
}

/// What an agent is made from, with the name and the rights it has now.
pub(crate) fn read_agent(text: &str, id: &str, permissions: &str) -> Result<AgentRecord, BodyFault> {
    let mut record = read::<state::AgentBody<'_>>(text)?.record(read_rights(permissions)?)?;
    record.id = state::agent_id(id)?;
    Ok(record)
}

/// The text of rights.
pub(crate) fn write_rights(permissions: &StoredPermissions) -> Result<String, BodyFault> {
    write(&state::PermissionsBody::of(permissions))
}

/// Rights of a text.
pub(crate) fn read_rights(text: &str) -> Result<StoredPermissions, BodyFault> {
    read::<state::PermissionsBody<'_>>(text)?.permissions()
}

/// The text of a state, with its seal.
pub(crate) fn write_state(state: &AgentState) -> Result<String, BodyFault> {
    Ok(seal(write(&state::StateBody::of(state))?))
}

/// The state of a sealed text.
pub(crate) fn read_state(text: &str) -> Result<AgentState, BodyFault> {
    read::<state::StateBody>(unseal(text)?)?.state()
}

/// The text of a ledger, with its seal.
pub(crate) fn write_ledger(ledger: &StoredLedger) -> Result<String, BodyFault> {
    Ok(seal(write(&state::LedgerBody::of(ledger))?))
}

/// The ledger of a sealed text.
pub(crate) fn read_ledger(text: &str) -> Result<StoredLedger, BodyFault> {
    Ok(read::<state::LedgerBody>(unseal(text)?)?.ledger())
}

/// Digits of a sum at the end of a sealed text.
const SEAL_CHARS: usize = 16;

/// A text that is overwritten again and again has its sum at its end: a digit that a disk has turned into another one
/// would still be a number.
fn seal(mut text: String) -> String {
    let digest = digest::of_text(&text);
    text.push_str(&digest::hex(&digest[..SEAL_CHARS / 2]));
    text
}

fn unseal(text: &str) -> Result<&str, BodyFault> {
    let end = text.len().checked_sub(SEAL_CHARS).filter(|end| text.is_char_boundary(*end));
    let (text, seal) = text.split_at(end.ok_or_else(|| BodyFault::new("it has no seal"))?);
    let digest = digest::of_text(text);
    let is_whole = digest::hex(&digest[..SEAL_CHARS / 2]) == seal;
    if is_whole { Ok(text) } else { Err(BodyFault::new("its seal is broken")) }
}

/// The name of an agent of a text.
pub(crate) fn read_agent_id(text: &str) -> Result<agent::AgentId, BodyFault> {
    state::agent_id(text)
}

fn write(body: &impl Serialize) -> Result<String, BodyFault> {
    serde_json::to_string(body).map_err(BodyFault::new)
}

fn read<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, BodyFault> {
    serde_json::from_str(text).map_err(BodyFault::new)
}
