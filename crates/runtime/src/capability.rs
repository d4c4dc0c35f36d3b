//! Capability tokens: whoever shows one *is* that agent. Only a digest is kept, so that nothing in memory or on disk
//! can be shown in its place.

use std::fmt;

use agent::Fault;
use agent::outside::Entropy;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// What every capability token starts with.
pub const CAPABILITY_PREFIX: &str = "nxc_";

/// A token, given once to whoever created the agent.
#[derive(Clone, PartialEq, Eq)]
pub struct Capability(String);

/// What is kept of a token. Looked up by value: a token has 256 random bits, so what a look-up's time tells of a digest
/// says nothing of any token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CapabilityDigest([u8; 32]);

impl Capability {
    /// A fresh one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub(crate) fn generate(entropy: &dyn Entropy) -> Result<Self, Fault> {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes)?;
        Ok(Self(format!("{CAPABILITY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The token's text, for whoever may have it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn digest(&self) -> CapabilityDigest {
        CapabilityDigest::from_token(self.0.as_bytes())
    }
}

/// Never in a log.
impl fmt::Debug for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Capability(hidden)")
    }
}

impl CapabilityDigest {
    pub(crate) fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The digest of an agent that was kept.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }
}
