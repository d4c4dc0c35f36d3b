//! The engine of local models. Only the modules below use the crate `local`; a build without the feature `local` has
//! `absent` in their place.

#[cfg(not(feature = "local"))]
mod absent;
#[cfg(feature = "local")]
mod embedded;
#[cfg(feature = "local")]
mod model_server;

use provider::NO_LOCAL_ENGINE;

#[cfg(not(feature = "local"))]
pub(crate) use self::absent::{ModelServerArgs, options, serve_model};
#[cfg(feature = "local")]
pub(crate) use self::embedded::options;
#[cfg(feature = "local")]
pub(crate) use self::model_server::{ModelServerArgs, run as serve_model};
use crate::Failure;
use crate::config::Choice;

/// Inference engine of local models, as the settings name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalEngine {
    /// The engine of the crate `local`.
    Own,
    /// llama.cpp, with the feature `llama-cpp`.
    LlamaCpp,
}

impl Choice for LocalEngine {
    const NAMES: &'static [&'static str] = &["own", "llama-cpp"];
    const VALUES: &'static [Self] = &[Self::Own, Self::LlamaCpp];
}

/// Fails when this build has no local engine: for commands that are useless without one.
pub(crate) fn require() -> Result<(), Failure> {
    if cfg!(feature = "local") { Ok(()) } else { Err(Failure::Usage(NO_LOCAL_ENGINE.to_owned())) }
}
