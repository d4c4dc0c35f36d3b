//! Dispatcher tests without a socket: request bytes in, response bytes out. Model, clock and entropy are test doubles.

mod approvals;
mod batches;
mod callers;
mod creation;
mod doubles;
mod envelopes;
mod faults;
mod idempotency;
mod in_process;
mod large_events;
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

use agent::outside::Timestamp;
use agent::permission::FilePath;
use futures_util::FutureExt;
use runtime::{AgentSpec, Initiator, Limits, NameSpec, PermissionSpec, PoolOptions};
use serde_json::Value;
use store::MemoryStore;
use testkit::{CountingEntropy, TestClock};
use tokio::sync::Semaphore;

use self::doubles::{CWD, EchoModel, SingleModel, TestWorkspace, capability_token, test_toolbox};
use super::*;

/// A dispatcher with its pool and test doubles.
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

    /// Creates a fixture on an existing store.
    async fn with_store(store: Arc<MemoryStore>, limits: Limits) -> Self {
        let (entropy, released) = (Arc::new(CountingEntropy::default()), Arc::new(Semaphore::new(0)));
        let outside = runtime::Outside {
            models: Arc::new(SingleModel(Arc::new(EchoModel { released: Arc::clone(&released) }))),
            tools: Arc::new(test_toolbox()),
            workspace: Arc::new(TestWorkspace),
            // 2024-01-15T10:30:00Z
            clock: Arc::new(TestClock::at(Timestamp(1_705_314_600_000_000))),
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

    /// Calls the daemon as admin.
    async fn call_daemon(&self, body: &str) -> (ResponseKind, String) {
        self.call_as(&Caller::admin(), "/", body).await
    }

    /// Calls an agent as admin.
    async fn call_agent(&self, id: &str, body: &str) -> (ResponseKind, String) {
        self.call_as(&Caller::admin(), id, body).await
    }

    async fn call_as(&self, caller: &Caller, door: &str, body: &str) -> (ResponseKind, String) {
        let target = match door {
            "/" => self.dispatcher.daemon_target(),
            name => self.dispatcher.agent_target(name, caller).unwrap(),
        };
        let response = self.dispatcher.respond(&target, caller, body.as_bytes(), EnvelopeRules::HTTP).await;
        (response.kind, String::from_utf8(response.body).unwrap())
    }

    /// Creates agents in the pool directly.
    async fn create_agents(&self, names: &[&str]) {
        for name in names {
            self.create_agent(name, "sandboxed", None).await;
        }
    }

    /// Creates an agent in the pool directly and returns its capability token.
    async fn create_agent(&self, name: &str, preset: &str, parent: Option<&str>) -> String {
        let id = |name: &str| AgentId::parse(name).unwrap();
        let permissions = PermissionSpec { preset: Some(preset.to_owned()), ..PermissionSpec::default() };
        let (name, parent) = (NameSpec::Given(id(name)), parent.map(id));
        let spec = AgentSpec { name, parent, permissions, ..AgentSpec::default() };
        self.pool.create(spec, Initiator::Admin).await.unwrap().capability.reveal().to_owned()
    }

    /// Returns the result of an admin's call, which must succeed.
    async fn call_ok(&self, door: &str, method: &str, params: &str) -> Value {
        let (_, response) = self.call_as(&Caller::admin(), door, &request(method, params)).await;
        let mut response: Value = serde_json::from_str(&response).unwrap();
        assert!(response.get("error").is_none(), "{method} {params} at {door}: {response}");
        response["result"].take()
    }

    /// Calls `create_agent` as admin.
    async fn request_create(&self, params: &str) -> (ResponseKind, String) {
        self.call_daemon(&request("create_agent", params)).await
    }

    async fn agent_names(&self) -> Vec<String> {
        self.pool.list().await.unwrap().iter().map(|agent| agent.id.to_string()).collect()
    }

    /// Spawns a call as admin.
    fn spawn_call(
        &self,
        door: &'static str,
        body: &'static str,
    ) -> tokio::task::JoinHandle<(ResponseKind, String)> {
        let fixture = Self {
            dispatcher: self.dispatcher.clone(),
            pool: self.pool.clone(),
            entropy: Arc::clone(&self.entropy),
            released: Arc::clone(&self.released),
            store: Arc::clone(&self.store),
        };
        tokio::spawn(async move { fixture.call_as(&Caller::admin(), door, body).await })
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

/// `data` is the JSON after the message, starting with a comma.
fn error_with(code: i64, message: &str, data: &str) -> (ResponseKind, String) {
    let message = Value::from(message);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":{message}{data}}}}}"#);
    (ResponseKind::Completed, text)
}

/// The JSON after the message of a denied call.
const DENIED: &str = r#","data":{"kind":"permission_denied"}"#;

fn denied(message: &str) -> (ResponseKind, String) {
    error_with(-32602, message, DENIED)
}

/// Runs all tasks until they are idle: only then does the paused clock advance.
async fn run_until_idle() {
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

#[test]
fn read_only_call_completes_in_one_poll_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let body = br#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#;
    let (target, caller) = (fixture.dispatcher.daemon_target(), Caller::admin());
    let response = fixture.dispatcher.respond(&target, &caller, body, EnvelopeRules::HTTP).now_or_never();
    assert_eq!(
        response.map(|response| response.kind),
        Some(ResponseKind::Completed),
        "a read-only call never waits"
    );
}
