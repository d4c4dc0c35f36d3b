//! The framework for defining tools: a tool's file declares its input type, effects and implementation. Specification,
//! schema and argument parsing are derived from the input type.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use agent::journal::Serial;
use agent::outside::{BoxFuture, CallSite, Clock, Entropy, PreparedCall, Tool, ToolContext, ToolOutputSink};
use agent::permission::Effect;
use agent::{Concurrency, ToolClass, ToolOutcome, ToolSpec};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::blocking::{CancelFlag, run_blocking};
use crate::commands::CommandRunner;
use crate::effects::{Granted, NoEffects, ToolEffects};
use crate::net::NetworkClient;
use crate::{arguments, spec};

/// Dependencies that all tools share, beside the context of each call.
pub struct ToolDependencies {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of random bytes for temporary names and UUIDs.
    pub entropy: Arc<dyn Entropy>,
    /// Runs commands in the sandbox.
    pub commands: Arc<CommandRunner>,
    /// Connects to hosts.
    pub network: Arc<NetworkClient>,
}

/// The environment of one tool call.
pub(crate) struct Invocation {
    pub(crate) dependencies: Arc<ToolDependencies>,
    /// The calling agent.
    pub(crate) agent: Serial,
    /// Where the call shows output while it runs.
    pub(crate) output: Arc<dyn ToolOutputSink>,
    /// The length of the arguments' JSON text.
    pub(crate) argument_bytes: usize,
}

/// The result of a tool: text for the model, or an unsuccessful outcome.
pub(crate) type ToolResult = Result<String, ToolOutcome>;

/// A tool definition. When it runs, the arguments are valid and the effects are permitted.
pub(crate) trait ToolDefinition: 'static {
    /// The arguments. The type's doc comment becomes the tool's description; those of the fields describe the
    /// arguments.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    /// The effects of a call. `run` gets the handle of these effects, and no other access.
    type Effects: ToolEffects;

    const NAME: &'static str;
    const ALIASES: &'static [&'static str] = &[];
    /// Whether models see the tool without being named in a list of tools.
    const IS_OFFERED_BY_DEFAULT: bool = true;
    const CONCURRENCY: Concurrency = Concurrency::Parallel;
    /// Whether a call may be repeated after a crash. A pure tool whose effects are writes does not compile.
    const CLASS: ToolClass;
    const TIME_MS_MAX: u64 = 30_000;
    /// Maximum length of the arguments' JSON text.
    const ARGUMENT_BYTES_MAX: usize = 1 << 20;

    /// The effects of a call. The error is the complete message for the model.
    fn effects(input: &Self::Input, site: &CallSite<'_>) -> Result<Self::Effects, String>;

    fn run(
        input: Self::Input,
        handle: <Self::Effects as ToolEffects>::Handle,
        call: Invocation,
    ) -> impl Future<Output = ToolResult> + Send + 'static;
}

/// A tool that only computes: equal inputs give equal results.
pub(crate) trait PureTool: 'static {
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    const NAME: &'static str;
    /// Whether models see the tool without being named in a list of tools.
    const IS_OFFERED_BY_DEFAULT: bool = true;
    /// Whether even a short input can take long; such calls always run on a blocking thread.
    const IS_HEAVY: bool = false;

    fn compute(input: Self::Input, stop: &CancelFlag) -> ToolResult;
}

/// Calls with longer arguments run on a blocking thread, because they would delay other tasks of the runtime thread.
const INLINE_BYTES_MAX: usize = 64 << 10;

impl<T: PureTool> ToolDefinition for T {
    type Input = T::Input;
    type Effects = NoEffects;
    const NAME: &'static str = T::NAME;
    const IS_OFFERED_BY_DEFAULT: bool = T::IS_OFFERED_BY_DEFAULT;
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Self::Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(input: Self::Input, _handle: (), call: Invocation) -> ToolResult {
        if T::IS_HEAVY || call.argument_bytes > INLINE_BYTES_MAX {
            run_blocking(move |stop| T::compute(input, stop)).await
        } else {
            T::compute(input, &CancelFlag::new())
        }
    }
}

/// An entry in a family's list of tools.
pub(crate) struct ToolEntry {
    build_spec: fn() -> ToolSpec,
    prepare: PrepareFn,
}

/// The entry of a definition. In a constant list, a pure tool whose effects are writes does not compile: a crash repeats
/// the calls of a pure tool.
pub(crate) const fn tool<T: ToolDefinition>() -> ToolEntry {
    let is_pure = matches!(T::CLASS, ToolClass::Pure);
    assert!(!(is_pure && T::Effects::ARE_WRITES), "a tool that writes is not pure");
    ToolEntry { build_spec: spec::build_spec::<T>, prepare: prepare_call::<T> }
}

impl ToolEntry {
    /// Builds the specification.
    pub(crate) fn spec(&self) -> Arc<ToolSpec> {
        Arc::new((self.build_spec)())
    }

    /// Builds the tool.
    pub(crate) fn build(&self, dependencies: &Arc<ToolDependencies>) -> Arc<dyn Tool> {
        Arc::new(DefinedTool {
            spec: self.spec(),
            prepare: self.prepare,
            dependencies: Arc::clone(dependencies),
        })
    }
}

/// The outcome of invalid arguments.
pub(crate) fn invalid_input(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("Invalid input: {what}"))
}

/// The outcome of a failed execution.
pub(crate) fn execution_failed(what: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::Failed(format!("{FAILED_PREFIX}{what}"))
}

/// The reason of a failure without the prefix for models, for callers other than tools.
pub(crate) fn failure_reason(outcome: &ToolOutcome) -> &str {
    let text = outcome.text();
    text.strip_prefix(FAILED_PREFIX).unwrap_or(text)
}

const FAILED_PREFIX: &str = "Execution failed: ";

/// Serializes a value as JSON on one line.
pub(crate) fn compact_json(value: &impl Serialize) -> ToolResult {
    serde_json::to_string(value).map_err(execution_failed)
}

/// Serializes a value as indented JSON, with a size limit: indentation can make a deeply nested value a hundred times
/// as long.
pub(crate) fn pretty_json(value: &impl Serialize) -> ToolResult {
    let mut text = BoundedBuffer(Vec::new());
    serde_json::to_writer_pretty(&mut text, value).map_err(execution_failed)?;
    String::from_utf8(text.0).map_err(execution_failed)
}

/// Serializes the members of every object sorted by name. The order inside a `Value` depends on whether any crate of
/// the build enables serde_json's `preserve_order`.
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
            scalar => scalar.serialize(serializer),
        }
    }
}

/// Maximum size of indented JSON.
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

    fn prepare(&self, arguments: &str, site: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        (self.prepare)(arguments, site, Arc::clone(&self.dependencies))
    }
}

fn prepare_call<T: ToolDefinition>(
    text: &str,
    site: &CallSite<'_>,
    dependencies: Arc<ToolDependencies>,
) -> Result<Box<dyn PreparedCall>, String> {
    let input = arguments::parse::<T::Input>(text, T::ARGUMENT_BYTES_MAX)?;
    let effects = T::effects(&input, site)?;
    Ok(Box::new(TypedCall::<T> { input, effects, dependencies, argument_bytes: text.len() }))
}

struct TypedCall<T: ToolDefinition> {
    input: T::Input,
    effects: T::Effects,
    dependencies: Arc<ToolDependencies>,
    argument_bytes: usize,
}

impl<T: ToolDefinition> PreparedCall for TypedCall<T> {
    fn effects(&self) -> Vec<Effect> {
        self.effects.list_on(self.dependencies.commands.processes())
    }

    fn run(self: Box<Self>, context: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        let Self { input, effects, dependencies, argument_bytes } = *self;
        let output = Arc::clone(&context.output);
        let call = Invocation { dependencies, agent: context.agent, output, argument_bytes };
        let running = effects.open(Granted::new(context)).map(|handle| T::run(input, handle, call));
        Box::pin(async move {
            let result = match running {
                Ok(running) => running.await,
                Err(outcome) => Err(outcome),
            };
            result.map_or_else(|outcome| outcome, ToolOutcome::Done)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::effects::FileWrite;
    use crate::fs::WritableFile;

    struct PureWriter;

    /// Claims that a write may be repeated after a crash.
    #[derive(Deserialize, JsonSchema)]
    struct Input {
        path: String,
    }

    impl ToolDefinition for PureWriter {
        type Input = Input;
        type Effects = FileWrite;
        const NAME: &'static str = "pure_writer";
        const CLASS: ToolClass = ToolClass::Pure;

        fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileWrite, String> {
            FileWrite::new(&input.path, site)
        }

        async fn run(_input: Input, _file: WritableFile, _call: Invocation) -> ToolResult {
            Ok(String::new())
        }
    }

    #[test]
    #[should_panic(expected = "a tool that writes is not pure")]
    fn pure_tool_with_a_write_does_not_register() {
        tool::<PureWriter>();
    }
}
