//! Weights of local models: the catalog, and the directory they are pulled to, verified in and removed from. Prompting
//! the user and showing progress is left to the command line, inference to `local`.

mod catalog;
mod checksum;
mod disk_space;
mod fault;
mod fetch;
mod lock;
mod manifest;
mod model_directory;
mod model_id;
mod options;
mod partial_download;
mod progress;
mod source;
#[cfg(test)]
mod test_support;

pub use catalog::{CatalogEntry, ModelCatalog, ModelKind};
pub use checksum::Checksum;
pub use fault::{FailedAttempt, WeightsFault};
pub use model_directory::{InstalledModel, ModelDirectory, ModelEntry, PullSpec};
pub use model_id::ModelId;
pub use options::PullOptions;
pub use progress::{PullProgress, PullStep};
pub use source::{DownloadSource, HubFile, WheelMember};
