//! How a tool is written: its file names the input, what a call touches and what it does. Description, schema and the
//! reading of arguments are derived from the input.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use agent::outside::{BoxFuture, CallSite, Clock, Entropy, PreparedCall, Tool, ToolContext};
use agent::permission::Effect;
use agent::{Concurrency, ToolClass, ToolOutcome, ToolSpec};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::blocking::{CancelFlag, run_blocking};
use crate::{arguments, spec};

/// What tools need of the outside beside the leave of each call.
pub struct ToolDependencies {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Names what must not be guessed.
    pub entropy: Arc<dyn Entropy>,
}

/// What a call has to work with.
pub(crate) struct Invocation {
    pub(crate) context: ToolContext,
    pub(crate) dependencies: Arc<ToolDependencies>,
    /// How long the text of its arguments was.
    pub(crate) argument_bytes: usize,
}

/// What a tool gives back: text for the model, or the outcome that is none.
pub(crate) type ToolResult = Result<String, ToolOutcome>;

/// A tool. Arguments are good and leave is given when it runs.
pub(crate) trait ToolDefinition: 'static {
    /// The arguments. The comment on the type is the tool's description, those on its fields are theirs.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;
    const ALIASES: &'static [&'static str] = &[];
    const CONCURRENCY: Concurrency = Concurrency::Parallel;
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = 30_000;
    /// The longest text of arguments that is read.
    const ARGUMENT_BYTES_MAX: usize = 1 << 20;

    /// What a call would touch. The error is a whole text for the model.
    fn effects(_input: &Self::Input, _scene: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        Ok(Vec::new())
    }

    fn run(input: Self::Input, call: Invocation) -> impl Future<Output = ToolResult> + Send + 'static;
}

/// A tool that only computes: the same input gives the same answer.
pub(crate) trait PureTool: 'static {
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;
    /// Whether even a short input can take long.
    const IS_HEAVY: bool = false;

    fn compute(input: Self::Input, stop: &CancelFlag) -> ToolResult;
}

/// Above this, computing takes long enough to hold up whatever shares the thread.
const INLINE_BYTES_MAX: usize = 64 << 10;

impl<T: PureTool> ToolDefinition for T {
    type Input = T::Input;
    const NAME: &'static str = T::NAME;

    async fn run(input: Self::Input, call: Invocation) -> ToolResult {
        if T::IS_HEAVY || call.argument_bytes > INLINE_BYTES_MAX {
            run_blocking(move |stop| T::compute(input, stop)).await
        } else {
            T::compute(input, &CancelFlag::never())
        }
    }
}

/// The tool that a definition makes.
pub(crate) fn build_tool<T: ToolDefinition>(parts: &Arc<ToolDependencies>) -> Arc<dyn Tool> {
    Arc::new(DefinedTool {
        spec: Arc::new(spec::build_spec::<T>()),
        prepare: prepare_call::<T>,
        dependencies: Arc::clone(parts),
    })
}

/// The arguments are no arguments of the tool.
pub(crate) fn invalid_input(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("Invalid input: {what}"))
}

/// The tool could not do it.
pub(crate) fn execution_failed(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("{FAILED_PREFIX}{what}"))
}

/// Why a tool could not do it, for somebody who called none.
pub(crate) fn failure_reason(outcome: &ToolOutcome) -> &str {
    let text = outcome.text();
    text.strip_prefix(FAILED_PREFIX).unwrap_or(text)
}

const FAILED_PREFIX: &str = "Execution failed: ";

/// JSON in one line.
pub(crate) fn compact_json(value: &impl Serialize) -> ToolResult {
    serde_json::to_string(value).map_err(execution_failed)
}

/// JSON for eyes. Indentation can make a deep value a hundred times as long as it was.
pub(crate) fn pretty_json(value: &impl Serialize) -> ToolResult {
    let mut text = BoundedBuffer(Vec::new());
    serde_json::to_writer_pretty(&mut text, value).map_err(execution_failed)?;
    String::from_utf8(text.0).map_err(execution_failed)
}

/// Writes the members of every object in the order of their names: whether a `Value` keeps another order depends on what
/// else is in the build.
pub(crate) struct SortedKeys<'a>(pub(crate) &'a Value);

impl Serialize for SortedKeys<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(SortedKeys)),
            Value::Object(members) => {
                let members: BTreeMap<&String, SortedKeys<'_>> =
                    members.iter().map(|(name, value)| (name, SortedKeys(value))).collect();
                serializer.collect_map(members)
            }
            plain => plain.serialize(serializer),
        }
    }
}

/// The most that is laid out for eyes.
const PRETTY_BYTES_MAX: usize = 10 << 20;

struct BoundedBuffer(Vec<u8>);

impl std::io::Write for BoundedBuffer {
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

type PrepareFn = fn(&str, &CallSite<'_>, Arc<ToolDependencies>) -> Result<Box<dyn PreparedCall>, String>;

struct DefinedTool {
    spec: Arc<ToolSpec>,
    prepare: PrepareFn,
    dependencies: Arc<ToolDependencies>,
}

impl Tool for DefinedTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, arguments: &str, scene: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        (self.prepare)(arguments, scene, Arc::clone(&self.dependencies))
    }
}

fn prepare_call<T: ToolDefinition>(
    text: &str,
    scene: &CallSite<'_>,
    parts: Arc<ToolDependencies>,
) -> Result<Box<dyn PreparedCall>, String> {
    let input = arguments::parse::<T::Input>(text, T::ARGUMENT_BYTES_MAX)?;
    let effects = T::effects(&input, scene)?;
    Ok(Box::new(TypedCall::<T> { input, effects, dependencies: parts, argument_bytes: text.len() }))
}

struct TypedCall<T: ToolDefinition> {
    input: T::Input,
    effects: Vec<Effect>,
    dependencies: Arc<ToolDependencies>,
    argument_bytes: usize,
}

impl<T: ToolDefinition> PreparedCall for TypedCall<T> {
    fn effects(&self) -> Vec<Effect> {
        self.effects.clone()
    }

    fn run(self: Box<Self>, leave: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        let call = Invocation {
            context: leave,
            dependencies: self.dependencies,
            argument_bytes: self.argument_bytes,
        };
        let running = T::run(self.input, call);
        Box::pin(async move { running.await.map_or_else(|outcome| outcome, ToolOutcome::Done) })
    }
}
