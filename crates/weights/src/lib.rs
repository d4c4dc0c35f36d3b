//! Weights of local models: a catalog of what there is, where it comes from, and how it is pulled, checked and removed.
