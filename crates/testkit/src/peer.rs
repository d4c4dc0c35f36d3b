//! A scripted HTTP/1.1 server over raw sockets: it reads requests, performs the actions that the test returns for each,
//! and records what it received. It runs on the test's runtime, so that a paused clock applies to it.

use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// One action after a request was read.
#[derive(Debug, Clone)]
pub enum PeerAction {
    /// Writes bytes.
    Write(Vec<u8>),
    /// Yields until the client has read the written bytes.
    Pause,
    /// Sleeps.
    Wait(Duration),
    /// Waits for a notification.
    WaitFor(Arc<Notify>),
    /// Closes the connection.
    Close,
    /// Holds the connection open and silent until the client closes it.
    Hold,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct PeerRequest {
    /// The number of the request, from 0.
    pub number: usize,
    /// The number of its connection, from 0.
    pub connection: usize,
    /// The number of the request on its connection, from 0.
    pub number_on_connection: usize,
    /// Request line and headers, without the empty line.
    pub head: String,
    /// The body.
    pub body: String,
}

impl PeerRequest {
    /// The path and query.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as JSON; panics if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|cause| panic!("the body is not JSON: {cause}: {}", self.body))
    }

    /// Head and body, as received.
    pub fn text(&self) -> String {
        format!("{}\r\n\r\n{}", self.head, self.body)
    }
}

/// What a peer has seen.
#[derive(Debug, Default)]
pub struct PeerLog {
    /// Number of accepted connections.
    pub connections: usize,
    /// Number of closed connections.
    pub closed: usize,
    /// Received requests.
    pub requests: Vec<PeerRequest>,
}

/// A scripted HTTP server on a free port of 127.0.0.1.
#[derive(Debug)]
pub struct HttpPeer {
    port: u16,
    log: watch::Receiver<PeerLog>,
    task: Option<JoinHandle<()>>,
}

impl HttpPeer {
    /// Starts a server that performs the returned actions for each request; must be called on a runtime.
    pub fn start(actions: impl Fn(&PeerRequest) -> Vec<PeerAction> + Send + Sync + 'static) -> Self {
        Self::start_limited(usize::MAX, actions)
    }

    /// Starts a server that performs the same actions for every request.
    pub fn with_actions(actions: Vec<PeerAction>) -> Self {
        Self::start(move |_| actions.clone())
    }

    /// Starts a server whose actions depend on the request number, from 0.
    pub fn by_number(actions: impl Fn(usize) -> Vec<PeerAction> + Send + Sync + 'static) -> Self {
        Self::start(move |request| actions(request.number))
    }

    /// Starts a server that refuses further connections after this number.
    pub fn start_limited(
        connections_max: usize,
        actions: impl Fn(&PeerRequest) -> Vec<PeerAction> + Send + Sync + 'static,
    ) -> Self {
        let (port, log, serving) = Self::prepare(connections_max, actions);
        Self { port, log, task: Some(tokio::spawn(serving)) }
    }

    /// Starts a server on a thread of its own, for tests without a runtime. It ends with the test process.
    pub fn start_on_thread(
        actions: impl Fn(&PeerRequest) -> Vec<PeerAction> + Send + Sync + 'static,
    ) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be created");
        let (port, log, serving) = Self::prepare(usize::MAX, actions);
        thread::spawn(move || runtime.block_on(serving));
        Self { port, log, task: None }
    }

    fn prepare(
        connections_max: usize,
        actions: impl Fn(&PeerRequest) -> Vec<PeerAction> + Send + Sync + 'static,
    ) -> (u16, watch::Receiver<PeerLog>, impl Future<Output = ()> + Send) {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        listener.set_nonblocking(true).expect("a socket takes options");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (sender, log) = watch::channel(PeerLog::default());
        let handler = Arc::new(ConnectionHandler { actions: Box::new(actions), log: sender });
        let serving = async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes sockets");
            for connection in 0..connections_max {
                let Ok((stream, _)) = listener.accept().await else { return };
                handler.log.send_modify(|log| log.connections += 1);
                tokio::spawn(Arc::clone(&handler).serve(stream, connection));
            }
        };
        (port, log, serving)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT/v1`, the base URL for OpenAI clients.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// What the peer has seen so far. No connection is served while the caller holds it.
    pub fn log(&self) -> watch::Ref<'_, PeerLog> {
        self.log.borrow()
    }

    /// The text of the last request; panics if there is none.
    pub fn last_request(&self) -> String {
        self.log().requests.last().expect("a request arrived").text()
    }

    /// Resolves when the condition holds for the log.
    pub fn wait<C: FnMut(&PeerLog) -> bool>(&self, condition: C) -> impl Future<Output = ()> + use<C> {
        let mut log = self.log.clone();
        async move { drop(log.wait_for(condition).await.expect("the server is running")) }
    }
}

impl Drop for HttpPeer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The test's function that returns the actions for a request.
type ActionsFor = dyn Fn(&PeerRequest) -> Vec<PeerAction> + Send + Sync;

struct ConnectionHandler {
    actions: Box<ActionsFor>,
    log: watch::Sender<PeerLog>,
}

impl ConnectionHandler {
    async fn serve(self: Arc<Self>, mut stream: TcpStream, connection: usize) {
        stream.set_nodelay(true).expect("a socket takes options");
        let mut unread = Vec::new();
        for number_on_connection in 0.. {
            let Some((head, body)) = read_request(&mut stream, &mut unread).await else { break };
            let mut request = PeerRequest { number: 0, connection, number_on_connection, head, body };
            self.log.send_modify(|log| {
                request.number = log.requests.len();
                log.requests.push(request.clone());
            });
            if perform(&mut stream, (self.actions)(&request)).await.is_none() {
                break;
            }
        }
        drop(stream);
        self.log.send_modify(|log| log.closed += 1);
    }
}

/// Performs the actions; `None` when the connection is closed.
async fn perform(stream: &mut TcpStream, actions: Vec<PeerAction>) -> Option<()> {
    for action in actions {
        match action {
            PeerAction::Write(bytes) => stream.write_all(&bytes).await.ok()?,
            PeerAction::Pause => yield_many().await,
            PeerAction::Wait(time) => tokio::time::sleep(time).await,
            PeerAction::WaitFor(event) => event.notified().await,
            PeerAction::Close => return None,
            PeerAction::Hold => {
                let _ = stream.read(&mut [0; 1]).await;
                return None;
            }
        }
    }
    Some(())
}

/// Yields often enough for the scheduler to poll the sockets, so that other tasks see the received bytes.
pub async fn yield_many() {
    for _ in 0..130 {
        tokio::task::yield_now().await;
    }
}

/// Reads one request with a `Content-Length`; `None` when the client has closed the connection.
async fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&unread[..end]).into_owned();
            let length = header(&head, "content-length").unwrap_or("0");
            let body_end = end + 4 + length.parse::<usize>().expect("a length is a number");
            if unread.len() >= body_end {
                let body = String::from_utf8_lossy(&unread[end + 4..body_end]).into_owned();
                unread.drain(..body_end);
                return Some((head, body));
            }
        }
        if stream.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The bytes of an HTTP response with a length; `headers` are complete lines.
pub fn http_response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
