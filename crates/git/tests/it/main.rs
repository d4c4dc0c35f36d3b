//! The room compared with git itself, on repositories that git made, and on repositories that lead elsewhere.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod against_git;
mod fixture;
mod locations;
mod results;
