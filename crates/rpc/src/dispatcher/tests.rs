//! The doors without a socket: bytes in, bytes out. The model, the clock and the random bytes are doubles.

mod callers;
mod creation;
mod doubles;
mod envelopes;
mod faults;
mod idempotency;
mod in_process;
mod lifecycle;
mod matrix;
mod notifications;
mod permissions;
mod responses;
mod streamed_sends;
mod streams;
mod trees;
mod turns;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::permission::FilePath;
use futures_util::FutureExt;
use runtime::{AgentSpec, Initiator, Limits, NameSpec, PermissionSpec, PoolOptions};
use serde_json::Value;
use store::MemoryStore;
use tokio::sync::Semaphore;

use self::doubles::{
    CWD, CountingEntropy, EchoModel, FixedClock, SingleModel, TestToolbox, TestWorkspace, capability_token,
};
use super::*;

/// A desk and what stands behind it.
struct Fixture {
    dispatcher: Dispatcher,
    pool: PoolHandle,
    entropy: Arc<CountingEntropy>,
    released: Arc<Semaphore>,
    store: Arc<MemoryStore>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with_limits(Limits::default()).await
    }

    async fn with_limits(limits: Limits) -> Self {
        Self::with_store(store::memory(), limits).await
    }

    /// A house over what a store has.
    async fn with_store(store: Arc<MemoryStore>, limits: Limits) -> Self {
        let (entropy, released) = (Arc::new(CountingEntropy::default()), Arc::new(Semaphore::new(0)));
        let outside = runtime::Outside {
            models: Arc::new(SingleModel(Arc::new(EchoModel { released: Arc::clone(&released) }))),
            tools: Arc::new(TestToolbox::new()),
            workspace: Arc::new(TestWorkspace),
            clock: Arc::new(FixedClock),
            entropy: Arc::<CountingEntropy>::clone(&entropy),
            store: Arc::<MemoryStore>::clone(&store),
        };
        let options = PoolOptions {
            limits,
            system_prompt_default: Some("Be brief.".to_owned()),
            cwd: FilePath::resolve(CWD, &FilePath::root()).unwrap(),
            ..PoolOptions::default()
        };
        let pool = PoolHandle::open(options, outside).await.unwrap();
        let options = DispatcherOptions { zone: TimeZone::UTC };
        Self { dispatcher: Dispatcher::new(pool.clone(), options), pool, entropy, released, store }
    }

    /// What the daemon's door gives back to an admin.
    async fn call_daemon(&self, body: &str) -> (ResponseKind, String) {
        self.call_as(&Caller::admin(), "/", body).await
    }

    /// What an agent's door gives back to an admin.
    async fn call_agent(&self, name: &str, body: &str) -> (ResponseKind, String) {
        self.call_as(&Caller::admin(), name, body).await
    }

    async fn call_as(&self, caller: &Caller, door: &str, body: &str) -> (ResponseKind, String) {
        let entrance = match door {
            "/" => self.dispatcher.daemon_target(),
            name => self.dispatcher.agent_target(name).unwrap(),
        };
        let answer = self.dispatcher.respond(entrance, caller, body.as_bytes()).await;
        (answer.kind, String::from_utf8(answer.body).unwrap())
    }

    /// Creates agents without going through a door.
    async fn create_agents(&self, names: &[&str]) {
        for name in names {
            self.create_agent(name, "sandboxed", None).await;
        }
    }

    /// Creates an agent without going through a door, and gives its capability's text.
    async fn create_agent(&self, name: &str, preset: &str, parent: Option<&str>) -> String {
        let id = |name: &str| AgentId::parse(name).unwrap();
        let permissions = PermissionSpec { preset: Some(preset.to_owned()), ..PermissionSpec::default() };
        let (name, parent) = (NameSpec::Given(id(name)), parent.map(id));
        let spec = AgentSpec { name, parent, permissions, ..AgentSpec::default() };
        self.pool.create(spec, Initiator::Admin).await.unwrap().capability.reveal().to_owned()
    }

    /// The result of an admin's call.
    async fn call_ok(&self, door: &str, method: &str, params: &str) -> Value {
        let (_, answer) = self.call_as(&Caller::admin(), door, &request(method, params)).await;
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer.get("error").is_none(), "{method} {params} at {door}: {answer}");
        answer["result"].take()
    }

    /// What an admin is told who asks for an agent.
    async fn request_create(&self, params: &str) -> (ResponseKind, String) {
        self.call_daemon(&request("create_agent", params)).await
    }

    async fn agent_names(&self) -> Vec<String> {
        self.pool.list().await.unwrap().iter().map(|agent| agent.id.to_string()).collect()
    }

    /// Starts a call and leaves it open.
    fn spawn_call(
        &self,
        door: &'static str,
        body: &'static str,
    ) -> tokio::task::JoinHandle<(ResponseKind, String)> {
        let house = Self {
            dispatcher: self.dispatcher.clone(),
            pool: self.pool.clone(),
            entropy: Arc::clone(&self.entropy),
            released: Arc::clone(&self.released),
            store: Arc::clone(&self.store),
        };
        tokio::spawn(async move { house.call_as(&Caller::admin(), door, body).await })
    }
}

/// A request with the id 1.
fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1}}"#)
}

fn result(json: &str) -> (ResponseKind, String) {
    (ResponseKind::Completed, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{json}}}"#))
}

fn error(code: i64, message: &str) -> (ResponseKind, String) {
    error_with(code, message, "")
}

/// `data` is what follows the message, with its comma.
fn error_with(code: i64, message: &str, data: &str) -> (ResponseKind, String) {
    let message = Value::from(message);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":{message}{data}}}}}"#);
    (ResponseKind::Completed, text)
}

/// What follows the message of a call that was not allowed.
const DENIED: &str = r#","data":{"kind":"permission_denied"}"#;

fn denied(message: &str) -> (ResponseKind, String) {
    error_with(-32602, message, DENIED)
}

/// Lets every task go on until all of them wait: the paused clock moves only then.
async fn run_until_idle() {
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

#[test]
fn a_call_can_be_polled_once_without_a_runtime_around_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let house = runtime.block_on(Fixture::new());
    let body = br#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#;
    let (entrance, caller) = (house.dispatcher.daemon_target(), Caller::admin());
    let answer = house.dispatcher.respond(entrance, &caller, body).now_or_never();
    assert_eq!(answer.map(|answer| answer.kind), Some(ResponseKind::Completed), "reading waits for nothing");
}
