//! The doors without a socket: bytes in, bytes out. The model, the clock and the random bytes are doubles.

mod answers;
mod callers;
mod envelopes;
mod faults;
mod notifications;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent::outside::{Clock, Entropy, ModelEvent, ModelRequest, ModelStream, Moment, Provider};
use agent::{Fault, FaultKind, TokenCount, ToolCall, Usage};
use futures_util::{FutureExt, StreamExt, stream};
use runtime::{Limits, PoolOptions};
use tokio::sync::Semaphore;

use super::*;

/// What the model says to a message: see [`EchoModel::answer`].
struct EchoModel {
    /// One permit lets one `wait` go on.
    released: Arc<Semaphore>,
}

impl Provider for EchoModel {
    fn ask(&self, request: ModelRequest) -> ModelStream {
        let last = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
        let released = Arc::clone(&self.released);
        let wait = async move { released.acquire().await.map(|permit| permit.forget()).is_err() };
        match last.as_str() {
            "wait" => {
                let rest = stream::once(wait).map(|_| Ok(ModelEvent::Text("lo".to_owned())));
                stream::iter([Ok(ModelEvent::Text("hel".to_owned()))]).chain(rest).chain(done()).boxed()
            }
            "fail" => {
                let fault = Fault::new(FaultKind::Model, "the model failed").caused_by("for the log alone");
                stream::iter([Err(fault)]).boxed()
            }
            "tool" => {
                let call = ToolCall { id: "c1".into(), name: "clock".into(), arguments: "{}".into() };
                stream::iter([Ok(ModelEvent::ToolCall(call))]).chain(done()).boxed()
            }
            other => {
                let usage = Usage { input: 5, output: 2, cached: 4 };
                let events = [ModelEvent::Text(format!("you said {other}")), ModelEvent::Usage(usage)];
                stream::iter(events.map(Ok)).chain(done()).boxed()
            }
        }
    }

    fn model(&self) -> Option<&str> {
        Some("echo/one")
    }

    fn window_tokens(&self) -> TokenCount {
        10_000
    }
}

fn done() -> stream::Iter<std::array::IntoIter<Result<ModelEvent, Fault>, 1>> {
    stream::iter([Ok(ModelEvent::Done)])
}

/// 2024-01-15, half past ten.
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Moment {
        Moment(1_705_314_600_000_000)
    }
}

/// Bytes that count: 1, 2, 3, ... It can be told to panic, to see what a handler that panics does to others.
#[derive(Default)]
struct CountingEntropy {
    filled: AtomicU64,
    panics: AtomicBool,
}

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        if self.panics.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("no more bytes"));
        }
        let digits = (self.filled.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
        bytes.copy_from_slice(&digits[digits.len() - bytes.len()..]);
        Ok(())
    }
}

/// A desk and what stands behind it.
struct House {
    desk: Desk,
    pool: PoolHandle,
    entropy: Arc<CountingEntropy>,
    released: Arc<Semaphore>,
}

impl House {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let (entropy, released) = (Arc::new(CountingEntropy::default()), Arc::new(Semaphore::new(0)));
        let outside = runtime::Outside {
            provider: Arc::new(EchoModel { released: Arc::clone(&released) }),
            clock: Arc::new(FixedClock),
            entropy: Arc::<CountingEntropy>::clone(&entropy),
        };
        let options = PoolOptions { limits, system_prompt_default: Some("Be brief.".to_owned()) };
        let pool = PoolHandle::new(options, outside);
        let options = DeskOptions { cwd: "/home/user/agents".to_owned(), zone: TimeZone::UTC };
        Self { desk: Desk::new(pool.clone(), options), pool, entropy, released }
    }

    /// What the daemon's door gives back to an admin.
    async fn at_daemon(&self, body: &str) -> (AnswerKind, String) {
        self.asked_by(&Caller::admin(), "/", body).await
    }

    /// What an agent's door gives back to an admin.
    async fn at_agent(&self, name: &str, body: &str) -> (AnswerKind, String) {
        self.asked_by(&Caller::admin(), name, body).await
    }

    async fn asked_by(&self, caller: &Caller, door: &str, body: &str) -> (AnswerKind, String) {
        let entrance = match door {
            "/" => self.desk.daemon_entrance(),
            name => self.desk.agent_entrance(name).unwrap(),
        };
        let answer = self.desk.answer(entrance, caller, body.as_bytes()).await;
        (answer.kind, String::from_utf8(answer.body).unwrap())
    }

    /// Creates agents without going through a door.
    fn agents(&self, names: &[&str]) {
        for name in names {
            let id = Some(AgentId::parse(name).unwrap());
            self.pool.create(runtime::AgentSpec { id, system_prompt: None }).unwrap();
        }
    }

    fn names(&self) -> Vec<String> {
        self.pool.list().iter().map(|agent| agent.id.to_string()).collect()
    }

    /// Starts a call and leaves it open.
    fn start(&self, door: &'static str, body: &'static str) -> tokio::task::JoinHandle<(AnswerKind, String)> {
        let house = Self {
            desk: self.desk.clone(),
            pool: self.pool.clone(),
            entropy: Arc::clone(&self.entropy),
            released: Arc::clone(&self.released),
        };
        tokio::spawn(async move { house.asked_by(&Caller::admin(), door, body).await })
    }
}

/// A request with the id 1.
fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1}}"#)
}

fn result(json: &str) -> (AnswerKind, String) {
    (AnswerKind::Answered, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{json}}}"#))
}

fn error(code: i64, message: &str) -> (AnswerKind, String) {
    error_with(code, message, "")
}

/// `data` is what follows the message, with its comma.
fn error_with(code: i64, message: &str, data: &str) -> (AnswerKind, String) {
    let message = serde_json::Value::from(message);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":{message}{data}}}}}"#);
    (AnswerKind::Answered, text)
}

/// Lets every task go on until all of them wait: the paused clock moves only then.
async fn settle() {
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

#[test]
fn a_call_can_be_polled_once_without_a_runtime_around_it() {
    let house = House::new();
    let body = br#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#;
    let (entrance, caller) = (house.desk.daemon_entrance(), Caller::admin());
    let answer = house.desk.answer(entrance, &caller, body).now_or_never();
    assert_eq!(answer.map(|answer| answer.kind), Some(AnswerKind::Answered), "reading waits for nothing");
}
