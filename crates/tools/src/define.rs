//! How a tool is written: its file names the input, what a call touches and what it does. Description, schema and the
//! reading of arguments are derived from the input.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use agent::outside::{Clock, Doing, Entropy, Leave, Prepared, Scene, Tool};
use agent::permission::Effect;
use agent::{Pace, ToolClass, ToolOutcome, ToolSpec};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::apart::{Stop, apart};
use crate::{arguments, spec};

/// What tools need of the outside beside the leave of each call.
pub struct Parts {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Names what must not be guessed.
    pub entropy: Arc<dyn Entropy>,
}

/// What a call has to work with.
pub(crate) struct Call {
    pub(crate) leave: Leave,
    pub(crate) parts: Arc<Parts>,
    /// How long the text of its arguments was.
    pub(crate) argument_bytes: usize,
}

/// What a tool gives back: text for the model, or the outcome that is none.
pub(crate) type Answer = Result<String, ToolOutcome>;

/// A tool. Arguments are good and leave is given when it runs.
pub(crate) trait Define: 'static {
    /// The arguments. The comment on the type is the tool's description, those on its fields are theirs.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;
    const ALIASES: &'static [&'static str] = &[];
    const PACE: Pace = Pace::Parallel;
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = 30_000;
    /// The longest text of arguments that is read.
    const ARGUMENT_BYTES_MAX: usize = 1 << 20;

    /// What a call would touch. The error is a whole text for the model.
    fn effects(_input: &Self::Input, _scene: &Scene<'_>) -> Result<Vec<Effect>, String> {
        Ok(Vec::new())
    }

    fn run(input: Self::Input, call: Call) -> impl Future<Output = Answer> + Send + 'static;
}

/// A tool that only computes: the same input gives the same answer.
pub(crate) trait Compute: 'static {
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;
    /// Whether even a short input can take long.
    const IS_HEAVY: bool = false;

    fn compute(input: Self::Input, stop: &Stop) -> Answer;
}

/// Above this, computing takes long enough to hold up whatever shares the thread.
const HERE_BYTES_MAX: usize = 64 << 10;

impl<T: Compute> Define for T {
    type Input = T::Input;
    const NAME: &'static str = T::NAME;

    async fn run(input: Self::Input, call: Call) -> Answer {
        if T::IS_HEAVY || call.argument_bytes > HERE_BYTES_MAX {
            apart(move |stop| T::compute(input, stop)).await
        } else {
            T::compute(input, &Stop::never())
        }
    }
}

/// The tool that a definition makes.
pub(crate) fn tool<T: Define>(parts: &Arc<Parts>) -> Arc<dyn Tool> {
    Arc::new(Defined { spec: Arc::new(spec::of::<T>()), start: start::<T>, parts: Arc::clone(parts) })
}

/// The arguments are no arguments of the tool.
pub(crate) fn invalid(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("Invalid input: {what}"))
}

/// The tool could not do it.
pub(crate) fn failed(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("{FAILED}{what}"))
}

/// Why a tool could not do it, for somebody who called none.
pub(crate) fn reason(outcome: &ToolOutcome) -> &str {
    let text = outcome.text();
    text.strip_prefix(FAILED).unwrap_or(text)
}

const FAILED: &str = "Execution failed: ";

/// JSON in one line.
pub(crate) fn compact(value: &impl Serialize) -> Answer {
    serde_json::to_string(value).map_err(failed)
}

/// JSON for eyes. Indentation can make a deep value a hundred times as long as it was.
pub(crate) fn pretty(value: &impl Serialize) -> Answer {
    let mut text = Bounded(Vec::new());
    serde_json::to_writer_pretty(&mut text, value).map_err(failed)?;
    String::from_utf8(text.0).map_err(failed)
}

/// Writes the members of every object in the order of their names: whether a `Value` keeps another order depends on what
/// else is in the build.
pub(crate) struct Sorted<'a>(pub(crate) &'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            Value::Object(members) => {
                let members: BTreeMap<&String, Sorted<'_>> =
                    members.iter().map(|(name, value)| (name, Sorted(value))).collect();
                serializer.collect_map(members)
            }
            plain => plain.serialize(serializer),
        }
    }
}

/// The most that is laid out for eyes.
const PRETTY_BYTES_MAX: usize = 10 << 20;

struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > PRETTY_BYTES_MAX {
            let text = format!("the result is longer than {PRETTY_BYTES_MAX} bytes");
            return Err(std::io::Error::other(text));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

type Start = fn(&str, &Scene<'_>, Arc<Parts>) -> Result<Box<dyn Prepared>, String>;

struct Defined {
    spec: Arc<ToolSpec>,
    start: Start,
    parts: Arc<Parts>,
}

impl Tool for Defined {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, arguments: &str, scene: &Scene<'_>) -> Result<Box<dyn Prepared>, String> {
        (self.start)(arguments, scene, Arc::clone(&self.parts))
    }
}

fn start<T: Define>(text: &str, scene: &Scene<'_>, parts: Arc<Parts>) -> Result<Box<dyn Prepared>, String> {
    let input = arguments::read::<T::Input>(text, T::ARGUMENT_BYTES_MAX)?;
    let effects = T::effects(&input, scene)?;
    Ok(Box::new(Ready::<T> { input, effects, parts, argument_bytes: text.len() }))
}

struct Ready<T: Define> {
    input: T::Input,
    effects: Vec<Effect>,
    parts: Arc<Parts>,
    argument_bytes: usize,
}

impl<T: Define> Prepared for Ready<T> {
    fn effects(&self) -> Vec<Effect> {
        self.effects.clone()
    }

    fn run(self: Box<Self>, leave: Leave) -> Doing<'static, ToolOutcome> {
        let call = Call { leave, parts: self.parts, argument_bytes: self.argument_bytes };
        let running = T::run(self.input, call);
        Box::pin(async move { running.await.map_or_else(|outcome| outcome, ToolOutcome::Done) })
    }
}
