//! A second door, in one file: JSON-RPC lines on in-memory streams. It has its own rules for bodies (batches are
//! accepted, notifications get no line) and shares accepting, closing and idle detection with HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use accept::{AcceptLoop, Activity, Listen};
use agent::outside::ModelSpec;
use nexus3_protocol::EnvelopeRules;
use rpc::{Caller, Dispatcher, ResponseKind};
use server::{Doors, OpenDoor, Transport};
use testkit::{ScriptedProvider, WINDOW_TOKENS};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::fixture::dispatcher;

struct MemoryListener(Mutex<Receiver<DuplexStream>>);

impl Listen for MemoryListener {
    type Connection = DuplexStream;

    async fn accept(&self) -> io::Result<DuplexStream> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok(stream),
            None => std::future::pending().await,
        }
    }
}

struct LineTransport(MemoryListener);

impl Transport for LineTransport {
    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn open(self: Box<Self>, dispatcher: Dispatcher, activity: Arc<Activity>) -> io::Result<OpenDoor> {
        let connections = AcceptLoop::start(self.0, 8, move |stream, stop| {
            serve(stream, dispatcher.clone(), Arc::clone(&activity), stop)
        });
        Ok(OpenDoor { connections, streams_stop: CancellationToken::new() })
    }
}

async fn serve(
    stream: DuplexStream,
    dispatcher: Dispatcher,
    activity: Arc<Activity>,
    stop: CancellationToken,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    loop {
        let line = tokio::select! {
            () = stop.cancelled() => return,
            line = lines.next_line() => line,
        };
        let Ok(Some(line)) = line else { return };
        let _request = activity.start();
        let target = dispatcher.daemon_target();
        let rules = EnvelopeRules::FULL;
        let response = dispatcher.respond(&target, &Caller::admin(), line.as_bytes(), rules).await;
        if response.kind != ResponseKind::Notification {
            writer.write_all(&[&response.body, b"\n".as_slice()].concat()).await.expect("the peer reads");
        }
    }
}

async fn open_doors() -> (Doors, Sender<DuplexStream>) {
    let model = Arc::new(ScriptedProvider::new(ModelSpec::with_window(WINDOW_TOKENS)));
    let (sender, receiver) = channel(1);
    let transport = LineTransport(MemoryListener(Mutex::new(receiver)));
    let doors = Doors::open(vec![Box::new(transport)], &dispatcher(model).await).expect("it opens");
    (doors, sender)
}

#[tokio::test(start_paused = true)]
async fn batch_is_accepted_at_a_door_whose_rules_allow_it() {
    let (_doors, connect) = open_doors().await;
    let (client, server) = duplex(64 << 10);
    connect.send(server).await.expect("the door accepts");
    let (reader, mut writer) = tokio::io::split(client);
    let batch = concat!(
        r#"[{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"a"}},"#,
        r#"{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"a"},"id":1}]"#,
        "\n"
    );
    writer.write_all(batch.as_bytes()).await.expect("the door reads");
    let response = BufReader::new(reader).lines().next_line().await.expect("the door writes");
    let expected = r#"[{"jsonrpc":"2.0","id":1,"result":{"success":true,"agent_id":"a"}}]"#;
    assert_eq!(response.as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn closing_the_doors_ends_every_connection() {
    let (doors, connect) = open_doors().await;
    let (client, server) = duplex(1024);
    connect.send(server).await.expect("the door accepts");
    doors.wait_idle(Duration::from_secs(10), || false).await;
    doors.close();
    assert!(doors.wait_closed(Duration::from_secs(5)).await);
    let end = BufReader::new(client).lines().next_line().await.expect("the stream ends");
    assert_eq!(end, None);
    assert!(connect.is_closed(), "the listener is closed");
}
