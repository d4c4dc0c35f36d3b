//! Stand-ins for a build without the feature `local`: no model server, and no local models for the registry.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use provider::{LocalOptions, NO_LOCAL_ENGINE};

use super::LocalEngine;
use crate::Failure;

/// Arguments of `model-server`: any, because the command fails in this build.
#[derive(Debug, Args)]
pub(crate) struct ModelServerArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

pub(crate) fn serve_model(_: &ModelServerArgs, _: &Path) -> Result<u8, Failure> {
    super::require().map(|()| 0)
}

/// Options of the registry: no local models. The setting `local_engine` may only have its default.
pub(crate) fn options(_: &Path, engine: LocalEngine) -> Result<Option<LocalOptions>, Failure> {
    match engine {
        LocalEngine::Own => Ok(None),
        LocalEngine::LlamaCpp => Err(Failure::Usage(format!("local_engine: {NO_LOCAL_ENGINE}"))),
    }
}
