//! The doors of the daemon: one open door per transport, closed and drained together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use accept::{AcceptLoop, Activity};
use rpc::Dispatcher;
use tokio_util::sync::CancellationToken;

/// A transport: a listener that is bound, and the protocol that clients speak on it. The transport authenticates its
/// callers, applies its own rules to bodies (batches, positional parameters, how a notification is answered), and
/// passes calls to the dispatcher.
pub trait Transport: Send {
    /// Where clients reach it, for errors and logs.
    fn address(&self) -> String;

    /// Starts accepting connections. Every request counts as activity until it is answered.
    ///
    /// # Errors
    /// When the listener cannot be registered with the async runtime.
    fn open(self: Box<Self>, dispatcher: Dispatcher, activity: Arc<Activity>) -> io::Result<OpenDoor>;
}

/// The connections of one transport.
pub struct OpenDoor {
    /// The accept loop and the connections.
    pub connections: AcceptLoop,
    /// Ends the streams that would not end by themselves.
    pub streams_stop: CancellationToken,
}

/// All open doors.
pub struct Doors {
    doors: Vec<OpenDoor>,
    activity: Arc<Activity>,
}

/// A transport that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve on {address}: {fault}")]
pub struct DoorFault {
    address: String,
    #[source]
    fault: io::Error,
}

impl Doors {
    /// Opens a door for each transport.
    ///
    /// # Errors
    /// When a transport cannot be opened.
    pub fn open(transports: Vec<Box<dyn Transport>>, dispatcher: &Dispatcher) -> Result<Self, DoorFault> {
        let activity = Arc::new(Activity::new());
        let open = |transport: Box<dyn Transport>| {
            let address = transport.address();
            let opened = transport.open(dispatcher.clone(), Arc::clone(&activity));
            opened.map_err(|fault| DoorFault { address, fault })
        };
        let doors = transports.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { doors, activity })
    }

    /// Returns when no request has been in flight for `time` and `in_use` is false.
    pub async fn wait_idle(&self, time: Duration, in_use: impl Fn() -> bool) {
        self.activity.wait_idle(time, in_use).await;
    }

    /// Stops accepting and closes idle connections; requests in flight and event streams continue.
    pub fn close(&self) {
        self.doors.iter().for_each(|door| door.connections.close());
    }

    /// Ends event streams after their ready events and waits at most `time` for pending responses. Returns whether all
    /// were written. Call [`Doors::close`] first.
    pub async fn wait_closed(&self, time: Duration) -> bool {
        self.doors.iter().for_each(|door| door.streams_stop.cancel());
        let all_ended = async {
            for door in &self.doors {
                door.connections.wait_ended().await;
            }
        };
        tokio::time::timeout(time, all_ended).await.is_ok()
    }
}
