//! The accept loop of a listening socket, and the tasks that serve its connections.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Delay before accepting again after an error, such as no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A source of connections: a listening socket, or a channel in tests.
pub trait Listen: Send + Sync + 'static {
    /// An accepted connection.
    type Connection: Send + 'static;

    /// Accepts the next connection.
    ///
    /// # Errors
    /// When the peer is gone or rejected, or the system call fails. The loop then accepts again.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

/// A running accept loop and its connections.
#[derive(Debug)]
pub struct AcceptLoop {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl AcceptLoop {
    /// Starts to accept at most `connections_max` connections at a time. `serve` serves one until it ends; when its
    /// token is cancelled, it finishes the requests in flight. Further connections wait in the kernel's backlog.
    pub fn start<L, F>(
        listener: L,
        connections_max: usize,
        serve: impl Fn(L::Connection, CancellationToken) -> F + Send + 'static,
    ) -> Self
    where
        L: Listen,
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting = accept_all(listener, connections_max, serve, stop.clone(), tasks.clone());
        tasks.spawn(accepting);
        Self { stop, tasks }
    }

    /// Stops accepting, closes the listener and idle connections; requests in flight continue.
    pub fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Returns when all connections have ended. Call [`AcceptLoop::close`] first.
    pub async fn wait_ended(&self) {
        self.tasks.wait().await;
    }
}

async fn accept_all<L, F>(
    listener: L,
    connections_max: usize,
    serve: impl Fn(L::Connection, CancellationToken) -> F + Send,
    stop: CancellationToken,
    tasks: TaskTracker,
) where
    L: Listen,
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut is_failing = false;
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok(connection) => {
                is_failing = false;
                // A child token per connection: a shared one would be a contended lock at every request.
                let serving = serve(connection, stop.child_token());
                tasks.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(fault) if is_peer_fault(&fault) => {
                tracing::debug!(%fault, "connection ended before it was accepted");
            }
            Err(fault) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%fault, "cannot accept connections; retrying");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Whether the peer closed the connection early or was rejected, which is not a failure of the server. The last two
/// kinds come from configuring a socket whose peer is gone.
fn is_peer_fault(fault: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    matches!(fault.kind(), ConnectionAborted | ConnectionReset | InvalidInput | NotConnected)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::sync::{Mutex, oneshot};

    use super::*;

    /// A connection ends when its sender is dropped.
    struct Connections(Mutex<UnboundedReceiver<io::Result<oneshot::Receiver<()>>>>);

    impl Listen for Connections {
        type Connection = oneshot::Receiver<()>;

        async fn accept(&self) -> io::Result<Self::Connection> {
            match self.0.lock().await.recv().await {
                Some(connection) => connection,
                None => std::future::pending().await,
            }
        }
    }

    type Served = UnboundedReceiver<CancellationToken>;

    fn start(
        connections_max: usize,
    ) -> (UnboundedSender<io::Result<oneshot::Receiver<()>>>, Served, AcceptLoop) {
        let (sender, receiver) = unbounded_channel();
        let (served_sender, served) = unbounded_channel();
        let connections = Connections(Mutex::new(receiver));
        let accepting = AcceptLoop::start(connections, connections_max, move |connection, stop| {
            served_sender.send(stop).unwrap();
            async move { drop(connection.await) }
        });
        (sender, served, accepting)
    }

    #[tokio::test(start_paused = true)]
    async fn connections_over_the_limit_wait_for_a_permit() {
        let (sender, mut served, _accepting) = start(1);
        let ((first, first_end), (second, _second_end)) = (oneshot::channel(), oneshot::channel());
        sender.send(Ok(first_end)).unwrap();
        sender.send(Ok(_second_end)).unwrap();
        served.recv().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(served.try_recv().is_err(), "the only permit is in use");
        drop(first);
        served.recv().await.unwrap();
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_of_accept_do_not_end_the_loop() {
        let (sender, mut served, _accepting) = start(8);
        sender.send(Err(io::ErrorKind::ConnectionAborted.into())).unwrap();
        sender.send(Err(io::ErrorKind::OutOfMemory.into())).unwrap();
        let (_end, connection) = oneshot::channel();
        sender.send(Ok(connection)).unwrap();
        served.recv().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn close_cancels_connections_and_waits_for_their_end() {
        let (sender, mut served, accepting) = start(8);
        let (end, connection) = oneshot::channel();
        sender.send(Ok(connection)).unwrap();
        let stop = served.recv().await.unwrap();
        accepting.close();
        stop.cancelled().await;
        let wait = Duration::from_secs(5);
        assert!(tokio::time::timeout(wait, accepting.wait_ended()).await.is_err(), "a request is in flight");
        drop(end);
        accepting.wait_ended().await;
        assert!(sender.is_closed(), "the listener is closed");
    }
}
