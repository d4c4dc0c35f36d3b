//! Weights of local models: a catalog of what there is, where it comes from, and how it is pulled, checked and removed.
//! Told its options; asking the user, showing progress and running the models is left to others.

mod catalog;
mod fault;
mod fetch;
mod lock;
mod name;
mod options;
mod part;
mod progress;
mod record;
mod shelf;
mod source;
mod space;
mod sum;
#[cfg(test)]
mod test_support;

pub use catalog::{Catalog, Entry, Kind};
pub use fault::{Attempt, WeightsFault};
pub use name::ModelId;
pub use options::PullOptions;
pub use progress::{Progress, Step};
pub use shelf::{Pulled, Shelf, Shelved, Wanted};
pub use source::{HubFile, Source, WheelMember};
pub use sum::Sum;
