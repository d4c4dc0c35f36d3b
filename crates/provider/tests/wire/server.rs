//! A tiny HTTP server: it reads a request, writes the bytes it was told to write, and keeps what it has seen.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What is done on a connection once a request has been read.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Write(Vec<u8>),
    /// Lets the client read what was written before anything else is.
    Pause,
    /// Takes its time.
    Wait(Duration),
    /// Closes the connection.
    Close,
    /// Keeps the connection open and silent until the client closes it.
    Hold,
}

/// A server that plays the same acts for every request.
pub(crate) struct Server {
    port: u16,
    log: Arc<Mutex<ServerLog>>,
    closed: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(crate) struct ServerLog {
    /// Connections that were opened.
    pub(crate) connections: usize,
    /// Requests, head and body, as they came.
    pub(crate) requests: Vec<String>,
}

impl Server {
    pub(crate) async fn start(acts: Vec<Action>) -> Self {
        Self::start_with(move |_| acts.clone()).await
    }

    /// The acts may depend on the request's number, from 0.
    pub(crate) async fn start_with(acts: impl Fn(usize) -> Vec<Action> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let seen = Arc::new(Mutex::new(ServerLog::default()));
        let (closing, closed) = watch::channel(0);
        let desk = Arc::new(ConnectionHandler {
            actions: Box::new(acts),
            log: Arc::clone(&seen),
            closed_sender: closing,
        });
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                desk.log().connections += 1;
                tokio::spawn(Arc::clone(&desk).serve(connection));
            }
        });
        Self { port, log: seen, closed, task }
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

    /// Returns when so many connections have come to their end.
    pub(crate) async fn wait_closed(&mut self, connections: usize) {
        self.closed.wait_for(|closed| *closed >= connections).await.expect("the server is there");
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
                let mut seen = self.log();
                seen.requests.push(request);
                seen.requests.len() - 1
            };
            if run_actions(&mut connection, (self.actions)(number)).await.is_none() {
                break;
            }
        }
        drop(connection);
        self.closed_sender.send_modify(|closed| *closed += 1);
    }
}

/// None when the connection is over.
async fn run_actions(connection: &mut TcpStream, acts: Vec<Action>) -> Option<()> {
    for act in acts {
        match act {
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

/// Lets everybody else see what has arrived: the scheduler looks at the sockets at least once in so many turns.
pub(crate) async fn yield_many() {
    for _ in 0..130 {
        tokio::task::yield_now().await;
    }
}

/// One request with a `content-length`; none when the client has closed.
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
