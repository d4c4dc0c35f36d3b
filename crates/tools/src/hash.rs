//! Hash tools.

mod sha256;

pub(crate) use sha256::Sha256;
