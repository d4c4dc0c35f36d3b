//! Weights of local models: a catalog of what there is, where it comes from, and how it is pulled, checked and removed.
//! Told its options; asking the user, showing progress and running the models is left to others.

mod catalog;
mod fault;
mod fetch;
mod lock;
mod model_id;
mod options;
mod partial_download;
mod progress;
mod manifest;
mod model_directory;
mod source;
mod disk_space;
mod checksum;
#[cfg(test)]
mod test_support;

pub use catalog::{ModelCatalog, CatalogEntry, ModelKind};
pub use fault::{FailedAttempt, WeightsFault};
pub use model_id::ModelId;
pub use options::PullOptions;
pub use progress::{PullProgress, PullStep};
pub use model_directory::{InstalledModel, ModelDirectory, ModelEntry, PullSpec};
pub use source::{HubFile, DownloadSource, WheelMember};
pub use checksum::Checksum;
