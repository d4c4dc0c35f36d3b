//! The ceiling property: in random trees of agents, no agent may do or grant what one of its ancestors may not grant,
//! whatever changes later. `oracle` is an independent implementation of what a grant allows.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod case;
mod grants;
mod oracle;
mod property;
mod tree;
mod vocabulary;
