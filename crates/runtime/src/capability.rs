//! Capability tokens: bearer tokens that authenticate a caller as one agent. Only the digest is stored, so neither
//! memory nor disk contains anything that could be presented as a token.

use std::fmt;

use agent::Fault;
use agent::outside::Entropy;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Prefix of every capability token.
pub const CAPABILITY_PREFIX: &str = "nxc_";

/// A bearer token for one agent, returned once to the creator of the agent.
#[derive(Clone, PartialEq, Eq)]
pub struct Capability(String);

/// SHA-256 digest of a token. Looked up by value, not in constant time: a token has 256 random bits, so lookup timing
/// reveals nothing useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CapabilityDigest([u8; 32]);

impl Capability {
    /// Generates a random token.
    ///
    /// # Errors
    /// When the entropy source fails.
    pub(crate) fn generate(entropy: &dyn Entropy) -> Result<Self, Fault> {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes)?;
        Ok(Self(format!("{CAPABILITY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Returns the token in plain text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn digest(&self) -> CapabilityDigest {
        CapabilityDigest::from_token(self.0.as_bytes())
    }
}

/// Hides the token from logs.
impl fmt::Debug for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Capability(hidden)")
    }
}

impl CapabilityDigest {
    pub(crate) fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Creates a digest from its stored bytes.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }
}
