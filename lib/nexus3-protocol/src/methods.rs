//! The method list: one entry a method. Routing, `openrpc.json`, the reference page, the typed client and the
//! demand for a handler all come from it.

mod agents;
mod calls;
mod lifecycle;
mod permissions;
mod scalars;
#[cfg(test)]
mod tests;

pub use agents::{
    AgentSummary, BudgetParams, CreateAgentOutput, CreateAgentParams, DestroyAgentOutput, DestroyAgentParams,
    DiscoverOutput, InitialError, InitialResponse, ListAgentsOutput, ListAgentsParams, MayGrantParams,
    NoParams, ShutdownServerOutput,
};
pub use calls::{
    CancelOutput, CancelParams, CompactOutput, CompactParams, ContextOutput, ImageParam, ImageView,
    MessageView, MessagesOutput, MessagesParams, SendOutput, SendParams, ShutdownOutput, SteerOutput,
    SteerParams, TokensOutput, ToolCallView, UsageOutput, UsedTokens,
};
pub use lifecycle::{
    ExportAgentOutput, ExportAgentParams, ForkAgentOutput, ForkAgentParams, ImportAgentOutput,
    ImportAgentParams, ListSessionsOutput, ListSessionsParams, RenameAgentOutput, RenameAgentParams,
    RollbackAgentOutput, RollbackAgentParams, SessionSummary, SnapshotDocument, SnapshotExtras,
    SnapshotImage, SnapshotMessage, SnapshotToolCall,
};
pub use permissions::{
    AgentOutput, ChildrenOutput, GrantView, LimitView, NameSetView, PermissionsOutput, ResourceUsageView,
    SetPermissionsParams,
};
pub use scalars::{Count, OnRestart, PageOffset, PageSize, RequestIdParam};

use crate::Door;

/// Hands the method list to another macro. Each entry reads
/// `/// documentation` `Name call = "wire_name" at Door: Params => Output;`
#[macro_export]
macro_rules! for_each_method {
    ($with:ident) => {
        $with! {
            /// Creates an agent and says where to reach it.
            CreateAgent create_agent = "create_agent" at Daemon: CreateAgentParams => CreateAgentOutput;
            /// Destroys an agent and its children: turns are cancelled, queues are answered, they are gone. `success` is
            /// false when there is no such agent.
            DestroyAgent destroy_agent = "destroy_agent" at Daemon: DestroyAgentParams => DestroyAgentOutput;
            /// Lists the agents in the order they were created.
            ListAgents list_agents = "list_agents" at Daemon: ListAgentsParams => ListAgentsOutput;
            /// Lists the agents that are kept, in the order they were created, also those that sleep. Nobody is woken.
            ListSessions list_sessions = "list_sessions" at Daemon: ListSessionsParams => ListSessionsOutput;
            /// Makes a new agent that knows the first messages of another. It has the same prompt, rights, working directory,
            /// model and parent, and a token of its own; what the other has used up is not its affair.
            ForkAgent fork_agent = "fork_agent" at Daemon: ForkAgentParams => ForkAgentOutput;
            /// Takes the newest messages of an agent away. What tools did meanwhile is not undone. Refused while a turn is
            /// open.
            RollbackAgent rollback_agent = "rollback_agent" at Daemon: RollbackAgentParams => RollbackAgentOutput;
            /// Gives an agent another name. It keeps everything else, its token too; the old name is free.
            RenameAgent rename_agent = "rename_agent" at Daemon: RenameAgentParams => RenameAgentOutput;
            /// Gives an agent's session as one JSON document, which `import_agent` reads. It holds no token.
            ExportAgent export_agent = "export_agent" at Daemon: ExportAgentParams => ExportAgentOutput;
            /// Makes an agent from a session document: one of `export_agent`, or a session file of the original NEXUS3. It
            /// stands at the top of a tree of its own and never gets more rights than the document says: `yolo` becomes
            /// `trusted`, a preset that is not known here becomes `sandboxed`. A refused import changes nothing. Only for
            /// admins.
            ImportAgent import_agent = "import_agent" at Daemon: ImportAgentParams => ImportAgentOutput;
            /// Stops the daemon: no new turns, open turns get the grace time to finish.
            ShutdownServer shutdown_server = "shutdown_server" at Daemon: NoParams => ShutdownServerOutput;
            /// This list, as an OpenRPC document.
            Discover discover = "rpc.discover" at Daemon: NoParams => DiscoverOutput;
            /// Gives an agent a message and answers when its turn has ended. One turn runs at a time; further
            /// messages wait in order. A client that goes away does not end the turn. The same `request_id` again, with
            /// the same content, gets the same turn: its answer when it has ended, also after a restart of the daemon.
            /// With `Accept: text/event-stream` the turn's events are streamed and the last one, `response`, holds the
            /// answer.
            Send send = "send" at Agent: SendParams => SendOutput;
            /// Ends a running or waiting `send` now; that `send` answers with the text it had.
            Cancel cancel = "cancel" at Agent: CancelParams => CancelOutput;
            /// Adds a word to the turn that is running. The model reads it before it is asked again.
            Steer steer = "steer" at Agent: SteerParams => SteerOutput;
            /// Makes an agent's context shorter: a model sums older messages up; when it cannot, the oldest are dropped. The
            /// newest messages, the prompt and pinned messages stay. Waits in line with the sends. Later message indexes
            /// are those of the shorter context.
            Compact compact = "compact" at Agent: CompactParams => CompactOutput;
            /// Marks an agent as finished. When an admin has marked every agent, the daemon stops.
            Shutdown shutdown = "shutdown" at Agent: NoParams => ShutdownOutput;
            /// Counts the tokens of an agent's context and what its models have used.
            GetTokens get_tokens = "get_tokens" at Agent: NoParams => TokensOutput;
            /// Describes an agent's context.
            GetContext get_context = "get_context" at Agent: NoParams => ContextOutput;
            /// Reads an agent's messages, also while a turn is running.
            GetMessages get_messages = "get_messages" at Agent: MessagesParams => MessagesOutput;
            /// Shows one agent in full: its place in the tree, its tools, what it has used up.
            GetAgent get_agent = "get_agent" at Agent: NoParams => AgentOutput;
            /// Lists an agent's children in the order they were created.
            ListChildren list_children = "list_children" at Agent: NoParams => ChildrenOutput;
            /// Explains what an agent may do and grant now: every limit with the reason and the ancestor that set it.
            GetPermissions get_permissions = "get_permissions" at Agent: NoParams => PermissionsOutput;
            /// Changes what an agent was given, within what its parent may grant. It counts from the next tool call on,
            /// for the agent and for everybody below it. For admins and ancestors.
            SetPermissions set_permissions = "set_permissions" at Agent: SetPermissionsParams => PermissionsOutput;
        }
    };
}

/// A method's types; implemented by one empty type per entry, see [`spec`].
pub trait MethodSpec {
    /// The entry in the list.
    const METHOD: Method;
    /// What it takes.
    type Params: serde::Serialize + serde::de::DeserializeOwned + Send + Sync;
    /// What it answers.
    type Output: serde::Serialize + serde::de::DeserializeOwned + Send;
}

macro_rules! define_methods {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
        /// A method of the list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $( $(#[doc = $doc])* $spec, )*
        }

        impl Method {
            /// The whole list, in order.
            pub const ALL: &'static [Method] = &[ $( Method::$spec, )* ];

            /// The name on the wire.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $( Method::$spec => $name, )* }
            }

            /// Where it may be called.
            #[must_use]
            pub fn door(self) -> Door {
                match self { $( Method::$spec => Door::$door, )* }
            }

            /// What it does, for people.
            #[must_use]
            pub fn doc(self) -> &'static str {
                match self { $( Method::$spec => concat!($( $doc, "\n" ),*).trim_ascii(), )* }
            }

            /// Finds a method by its name on the wire.
            #[must_use]
            pub fn find(name: &str) -> Option<Method> {
                match name { $( $name => Some(Method::$spec), )* _ => None }
            }
        }

        /// One empty type per method, to name its parameters and output by.
        pub mod spec {
            $(
                $(#[doc = $doc])*
                #[derive(Debug, Clone, Copy)]
                pub struct $spec;

                impl super::MethodSpec for $spec {
                    const METHOD: super::Method = super::Method::$spec;
                    type Params = super::$params;
                    type Output = super::$output;
                }
            )*
        }

        #[cfg(feature = "schema")]
        pub(crate) fn method_schemas(
            method: Method,
            generator: &mut schemars::SchemaGenerator,
        ) -> (schemars::Schema, schemars::Schema) {
            match method {
                $( Method::$spec => (
                    <$params as schemars::JsonSchema>::json_schema(generator),
                    generator.subschema_for::<$output>(),
                ), )*
            }
        }
    };
}

for_each_method!(define_methods);
