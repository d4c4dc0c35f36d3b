//! The model's side of a turn: what it is asked, what it says, and that the question fits its window. A context that is
//! too long is made shorter before the model is asked, and when it says that it is.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agent::fold::{FoldHow, FoldPart, Summary, Want};
use agent::outside::{Asker, ModelEvent, ModelRequest, StopReason};
use agent::permission::Resource;
use agent::{Fault, FaultKind, Frame, Gauge, TokenCount, ToolSpec, TurnEvent, Usage};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::super::folding::{FoldStep, Folding};
use super::{Awaited, Performance, panicked, silent};
use crate::feed::{Delta, DeltaKind};

/// How often a model may say that a question is too long before it is believed that nothing helps.
const REFUSALS_MAX: u32 = 6;

/// The most that a question may wait where the provider does not end it: each bounds its waits itself, far below this.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Who makes a context shorter that is full.
const BY_ITSELF: &str = "auto";

/// How far the way to the next answer is.
#[derive(Default)]
pub(super) struct Asking {
    /// What is under way in the working directory, once somebody has looked in this turn.
    state: Option<Option<String>>,
    /// What the question under way was counted as, until the model tells what it read.
    counted: Option<TokenCount>,
    /// Whether anything of the answer has come.
    has_spoken: bool,
    /// Whether the question under way waits, and nobody is asked yet.
    waits: bool,
    has_summed: bool,
    has_dropped: bool,
    /// How often the model has said that the question is too long.
    refusals: u32,
    /// Whether it has said so of the context as it is.
    is_refused: bool,
}

impl Asking {
    /// The model answers: the next question is a new one.
    fn answered(&mut self) {
        let (state, counted) = (self.state.take(), self.counted);
        *self = Self { state, counted, has_spoken: true, ..Self::default() };
    }
}

/// What is sent beside the context.
struct Beside {
    tools: Vec<Arc<ToolSpec>>,
    tail: Option<Arc<str>>,
    frame: Frame,
}

impl Performance {
    /// Asks the model, or waits for a slot to do it, or says why not.
    pub(super) fn begin_asking(&mut self) {
        let used_up = |resource: &Resource| self.shared.node.remaining(*resource) == Some(0);
        let spent =
            self.spent.take().or_else(|| [Resource::Tokens, Resource::WallMs].into_iter().find(used_up));
        if let Some(resource) = spent {
            return self.feed(TurnEvent::BudgetSpent(resource));
        }
        if self.slot.is_none() {
            let slots = Arc::clone(&self.shared.admission.slots);
            self.awaited = Awaited::Slot(Box::pin(slots.acquire_owned()));
            return;
        }
        let beside = self.beside();
        if !self.fold_first(&beside) {
            self.ask(beside);
        }
    }

    fn beside(&mut self) -> Beside {
        let shared = &self.shared;
        let tools = shared.visible_tools();
        let state = self.asking.state.get_or_insert_with(|| shared.place_state());
        let tail = shared.tail(state.as_deref()).map(Arc::from);
        let dynamic = tail.as_deref().map_or(0, |tail| shared.provider.count(tail));
        let frame = shared.frame(&tools, dynamic);
        Beside { tools, tail, frame }
    }

    /// Whether the context has to be made shorter first; then that has begun.
    fn fold_first(&mut self, beside: &Beside) -> bool {
        let size = self.shared.published.read().window.size(&beside.frame);
        if !size.is_full() && !self.asking.is_refused {
            return false;
        }
        if !std::mem::replace(&mut self.asking.has_summed, true) && self.shared.can_pay_summary() {
            let window = self.shared.published.read().window.clone();
            if let Some(summary) = Summary::plan(&window, &size, beside.frame.gauge, Want::Full) {
                self.asking.counted = None;
                self.awaited = Awaited::Summary(Box::new(Folding::begin(&self.shared, summary)));
                return true;
            }
        }
        if !std::mem::replace(&mut self.asking.has_dropped, true) {
            let refusals = if self.asking.is_refused { self.asking.refusals } else { 0 };
            if let Some(parts) = self.shared.dropped(&beside.frame, &size, refusals) {
                self.stage_fold(parts, FoldHow::Dropped);
                self.todo.push_front(agent::TurnAction::AskModel);
                return true;
            }
        }
        self.asking.is_refused = false;
        false
    }

    fn stage_fold(&mut self, parts: Vec<FoldPart>, how: FoldHow) {
        let fold = self.shared.fold(parts, how, Some(self.number), BY_ITSELF);
        let reclaimed = fold.record.reclaimed();
        self.staged.fold(fold);
        self.asking.is_refused = false;
        self.feed(TurnEvent::Folded(reclaimed));
    }

    /// What comes of the summary. None when the model is to be asked now.
    pub(super) fn summed(&mut self, step: FoldStep) -> Option<TurnEvent> {
        match step {
            FoldStep::Used(usage) => return Some(TurnEvent::Usage(usage)),
            FoldStep::Summed(parts) => self.stage_fold(parts, FoldHow::Summary),
            FoldStep::Useless => tracing::warn!("no summary: the model's is not shorter"),
            FoldStep::Failed(fault) => tracing::warn!("no summary: {fault}"),
        }
        self.hang_up();
        None
    }

    fn ask(&mut self, beside: Beside) {
        self.tools.next_round();
        let Beside { tools, tail, frame } = beside;
        let request = {
            let mut state = self.shared.published.write();
            state.dynamic = frame.dynamic;
            // As counted: what was corrected would teach nothing.
            let counted = state.window.size(&Frame { gauge: Gauge::default(), ..frame });
            self.asking.counted = Some(counted.total);
            ModelRequest {
                system: state.window.system().cloned(),
                messages: state.window.shown(),
                lineage: Some(state.window.lineage().clone()),
                tail,
                tools,
                asker: Asker { agent: Some(self.shared.id.clone()), root: self.shared.node.root() },
                ..ModelRequest::default()
            }
        };
        (self.asking.has_spoken, self.asking.waits) = (false, false);
        tracing::debug!(messages = request.messages.len(), tools = request.tools.len(), "asking the model");
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| self.shared.provider.ask(request)));
        self.awaited = Awaited::Model(asked.unwrap_or_else(|panic| {
            let fault = panicked(panic.as_ref());
            futures_util::stream::once(std::future::ready(Err(fault))).boxed()
        }));
        self.heard_at = Instant::now();
    }

    /// None when the model is to be asked again.
    pub(super) async fn next_word(&mut self) -> Option<TurnEvent> {
        let idle = self.shared.limits.model_idle;
        // Whoever waits for a place, or for the time that a server named, is not silent.
        let silence_max = if self.asking.waits { idle.max(WAIT_MAX) } else { idle };
        let patience = silence_max.saturating_sub(self.heard_at.elapsed());
        let Awaited::Model(stream) = &mut self.awaited else { return Some(TurnEvent::ModelFailed(silent())) };
        let next = AssertUnwindSafe(stream.next()).catch_unwind();
        let event = match tokio::time::timeout(patience, next).await {
            Ok(Ok(Some(Ok(event)))) => match self.heard(event) {
                Some(event) => return Some(event),
                None => TurnEvent::ModelDone,
            },
            Ok(Ok(Some(Err(fault)))) if self.is_too_long(&fault) => {
                self.hang_up();
                return None;
            }
            Ok(Ok(Some(Err(fault)))) => TurnEvent::ModelFailed(fault),
            Ok(Ok(None)) => TurnEvent::ModelFailed(silent()),
            Ok(Err(panic)) => TurnEvent::ModelFailed(panicked(panic.as_ref())),
            Err(_) => TurnEvent::ModelFailed(Fault::new(
                FaultKind::Model,
                format!("API request timed out: the model was silent for {} s", silence_max.as_secs_f64()),
            )),
        };
        self.hang_up();
        Some(event)
    }

    /// None when the answer is complete.
    fn heard(&mut self, event: ModelEvent) -> Option<TurnEvent> {
        self.asking.waits = event == ModelEvent::Waiting;
        if matches!(event, ModelEvent::Waiting | ModelEvent::Alive) {
            return Some(TurnEvent::Text(String::new()));
        }
        if !self.asking.has_spoken {
            self.asking.answered();
        }
        Some(match event {
            ModelEvent::Text(text) => {
                self.say(DeltaKind::Text, &text);
                TurnEvent::Text(text)
            }
            // Not part of the answer: whoever listens hears it, and the turn goes on.
            ModelEvent::Reasoning(text) => {
                self.say(DeltaKind::Reasoning, &text);
                TurnEvent::Text(String::new())
            }
            ModelEvent::Thoughts(thoughts) => TurnEvent::Thoughts(thoughts),
            ModelEvent::Usage(usage) => {
                self.learn(usage);
                self.shared.record_model_usage(usage, self.shared.provider.traits().prices);
                TurnEvent::Usage(usage)
            }
            // Counted by another tokenizer: it teaches nothing.
            ModelEvent::OtherUsage(usage, prices) => {
                self.shared.record_model_usage(usage, prices);
                TurnEvent::Usage(usage)
            }
            ModelEvent::Stopped(StopReason::Length) => TurnEvent::CutShort,
            ModelEvent::Stopped(_) | ModelEvent::Waiting | ModelEvent::Alive => {
                TurnEvent::Text(String::new())
            }
            ModelEvent::ToolCall(call) => {
                let manner = self.tools.offer(&call);
                TurnEvent::ToolCall(call, manner)
            }
            ModelEvent::Done => return None,
        })
    }

    /// The first report of an answer tells how the model counts.
    fn learn(&mut self, usage: Usage) {
        if usage.input > 0
            && let Some(counted) = self.asking.counted.take()
        {
            self.shared.published.write().gauge.learn(counted, usage.input);
        }
    }

    /// Whether the question does not fit, and a shorter one may: nothing has come of the answer yet.
    fn is_too_long(&mut self, fault: &Fault) -> bool {
        let asking = &mut self.asking;
        if fault.kind != FaultKind::ContextFull || asking.has_spoken || asking.refusals >= REFUSALS_MAX {
            return false;
        }
        asking.refusals += 1;
        asking.is_refused = true;
        asking.has_dropped = false;
        true
    }

    /// Tells whoever listens what the model says.
    fn say(&self, kind: DeltaKind, text: &str) {
        let shared = &self.shared;
        if shared.feed.is_heard() && !text.is_empty() {
            shared.feed.say(Delta {
                agent: shared.node.serial,
                name: shared.id.clone(),
                request_id: self.request_id.clone(),
                turn: self.number,
                kind,
                text: text.to_owned(),
            });
        }
    }
}
