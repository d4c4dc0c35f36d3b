//! The world of a pool under test: the scripted model, a clock that stands, entropy that counts.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::outside::{Clock, Entropy, Moment};
use agent::{AgentId, Fault, FaultKind, RequestId, Source, TurnEnd};
use runtime::{AgentHandle, AgentSpec, Limits, NewMessage, Outside, PoolHandle, PoolOptions};

use crate::model::ScriptedModel;

pub(crate) const NOW: Moment = Moment(1_700_000_000_000_000);

/// It is always the same moment.
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Moment {
        NOW
    }
}

/// Bytes nobody has to guess: 1, 2, 3, ...
#[derive(Default)]
pub(crate) struct CountingEntropy {
    filled: AtomicU64,
}

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        let count = self.filled.fetch_add(1, Ordering::Relaxed) + 1;
        let digits = count.to_be_bytes();
        bytes.copy_from_slice(&digits[digits.len() - bytes.len()..]);
        Ok(())
    }
}

/// A pool and its model.
pub(crate) struct World {
    pub(crate) pool: PoolHandle,
    pub(crate) model: Arc<ScriptedModel>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::under(Arc::new(FixedClock), limits)
    }

    pub(crate) fn under(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        let model = Arc::new(ScriptedModel::new());
        let provider = Arc::<ScriptedModel>::clone(&model);
        let outside = Outside { provider, clock, entropy: Arc::new(CountingEntropy::default()) };
        let options = PoolOptions { limits, system_prompt_default: Some("the pool's prompt".to_owned()) };
        Self { pool: PoolHandle::new(options, outside), model }
    }

    pub(crate) fn agent(&self, name: &str) -> AgentHandle {
        self.pool.create(named(name)).expect("there is room for an agent")
    }
}

pub(crate) fn id(name: &str) -> AgentId {
    AgentId::parse(name).expect("a name")
}

pub(crate) fn named(name: &str) -> AgentSpec {
    AgentSpec { id: Some(id(name)), system_prompt: None }
}

pub(crate) fn number(number: i64) -> RequestId {
    RequestId::Number(number)
}

pub(crate) fn message(request_id: i64, script: &str) -> NewMessage {
    NewMessage {
        text: script.to_owned(),
        request_id: RequestId::Number(request_id),
        source: Source::default(),
    }
}

/// A send on its way, with a task of its own so that it needs nobody to poll it.
pub(crate) type Sending = tokio::task::JoinHandle<Result<TurnEnd, Fault>>;

pub(crate) fn start(agent: &AgentHandle, request_id: i64, script: &str) -> Sending {
    let (agent, message) = (agent.clone(), message(request_id, script));
    tokio::spawn(async move { agent.send(message).await })
}

/// A send that was answered with an end.
pub(crate) async fn end_of(sending: Sending) -> TurnEnd {
    sending.await.expect("a send does not panic").expect("the turn ended well")
}

/// A send that was answered with a fault.
pub(crate) async fn fault_of(sending: Sending) -> Fault {
    sending.await.expect("a send does not panic").expect_err("the turn failed")
}

/// What a control call gives. It may not let any time pass: it would have waited for a turn.
pub(crate) async fn at_once<T>(call: impl Future<Output = T>) -> T {
    let before = tokio::time::Instant::now();
    let answer = call.await;
    assert_eq!(tokio::time::Instant::now(), before, "the call waited");
    answer
}

/// Lets every task go on until all of them wait for something.
pub(crate) async fn settle() {
    // The paused clock moves only when no task can run, so a nap ends when everything has settled.
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

pub(crate) fn is_busy(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Busy { .. })
}
