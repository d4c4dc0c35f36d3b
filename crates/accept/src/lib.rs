//! Accepting connections, for every server of the workspace: a connection limit, retries, graceful close, and detection
//! of idle time. What is spoken on a connection belongs to the servers.

mod accept_loop;
mod activity;

pub use accept_loop::{AcceptLoop, Listen};
pub use activity::{Activity, ActivityGuard, OwnedActivityGuard};
