//! Tests of the sandbox with real processes, in every tier.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod commands;
mod fixture;
mod lifecycle;
mod self_test;
