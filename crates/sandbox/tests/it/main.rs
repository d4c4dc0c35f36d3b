//! Tests of the sandbox with real processes, in every tier.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod built_ins;
mod commands;
#[cfg(target_arch = "x86_64")]
mod escapes;
mod fixture;
mod grants;
mod hidden;
mod lifecycle;
mod limits;
mod programs;
mod requests;
mod self_test;
mod tricks;
mod unconfined;
mod workloads;
