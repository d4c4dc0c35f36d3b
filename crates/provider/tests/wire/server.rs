//! Scripted HTTP server: reads requests, performs the configured actions for each, and logs what it received.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One action after a request was read.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Write(Vec<u8>),
    /// Yields until the client has read the written bytes.
    Pause,
    /// Sleeps.
    Wait(Duration),
    /// Closes the connection.
    Close,
    /// Holds the connection open and silent until the client closes it.
    Hold,
}

/// A scripted HTTP server.
pub(crate) struct Server {
    port: u16,
    log: Arc<Mutex<ServerLog>>,
    closed: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(crate) struct ServerLog {
    /// Number of accepted connections.
    pub(crate) connections: usize,
    /// Received requests, head and body.
    pub(crate) requests: Vec<String>,
}

impl Server {
    pub(crate) async fn start(actions: Vec<Action>) -> Self {
        Self::start_with(move |_| actions.clone()).await
    }

    /// Starts a server whose actions depend on the request number, from 0.
    pub(crate) async fn start_with(actions: impl Fn(usize) -> Vec<Action> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let log = Arc::new(Mutex::new(ServerLog::default()));
        let (closed_sender, closed) = watch::channel(0);
        let handler =
            Arc::new(ConnectionHandler { actions: Box::new(actions), log: Arc::clone(&log), closed_sender });
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                handler.log().connections += 1;
                tokio::spawn(Arc::clone(&handler).serve(connection));
            }
        });
        Self { port, log, closed, task }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, ServerLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many connections were closed.
    pub(crate) async fn wait_closed(&mut self, connections: usize) {
        self.closed.wait_for(|closed| *closed >= connections).await.expect("the server is running");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ConnectionHandler {
    actions: Box<dyn Fn(usize) -> Vec<Action> + Send + Sync>,
    log: Arc<Mutex<ServerLog>>,
    closed_sender: watch::Sender<usize>,
}

impl ConnectionHandler {
    fn log(&self) -> MutexGuard<'_, ServerLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, mut connection: TcpStream) {
        connection.set_nodelay(true).expect("a socket takes options");
        while let Some(request) = read_request(&mut connection).await {
            let number = {
                let mut log = self.log();
                log.requests.push(request);
                log.requests.len() - 1
            };
            if run_actions(&mut connection, (self.actions)(number)).await.is_none() {
                break;
            }
        }
        drop(connection);
        self.closed_sender.send_modify(|closed| *closed += 1);
    }
}

/// Performs the actions; `None` when the connection is closed.
async fn run_actions(connection: &mut TcpStream, actions: Vec<Action>) -> Option<()> {
    for action in actions {
        match action {
            Action::Write(bytes) => connection.write_all(&bytes).await.ok()?,
            Action::Pause => yield_many().await,
            Action::Wait(time) => tokio::time::sleep(time).await,
            Action::Close => return None,
            Action::Hold => {
                let _ = connection.read(&mut [0; 1]).await;
                return None;
            }
        }
    }
    Some(())
}

/// Yields often enough for the scheduler to poll the sockets, so that other tasks see the received bytes.
pub(crate) async fn yield_many() {
    for _ in 0..130 {
        tokio::task::yield_now().await;
    }
}

/// Reads one request with a `content-length`; `None` when the client has closed the connection.
async fn read_request(connection: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("a length is a number")) {
                return Some(text);
            }
        }
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
