//! The doors of the daemon: transports that accept connections, authenticate callers and pass calls to the crate `rpc`,
//! which interprets and executes them. HTTP on loopback is the first.

mod doors;
pub mod http;
mod listen;

pub use doors::{DoorFault, Doors, OpenDoor, Transport};
pub use listen::{BindFault, BoundSocket, Host, Listener, bind};
