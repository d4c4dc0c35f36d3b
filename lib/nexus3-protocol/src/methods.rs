//! The method list: one entry per method. Routing, `openrpc.json`, the reference page, the typed client and the
//! handler trait are generated from it.

mod access;
mod agents;
mod approvals;
mod calls;
mod lifecycle;
mod permissions;
mod scalars;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use agents::{
    AgentSummary, BudgetParams, CreateAgentOutput, CreateAgentParams, DamagedAgentSummary,
    DestroyAgentOutput, DestroyAgentParams, DiscoverOutput, InitialError, InitialResponse, ListAgentsOutput,
    ListAgentsParams, MayGrantParams, NoParams, ShutdownServerOutput,
};
pub use approvals::{
    AnswerApprovalOutput, AnswerApprovalParams, ApprovalDecision, ApprovalScope, ApprovalView,
    ListApprovalsOutput, ListApprovalsParams, RuleView,
};
pub use calls::{
    CancelOutput, CancelParams, CompactOutput, CompactParams, ContextOutput, ImageParam, ImageView,
    MessageView, MessagesOutput, MessagesParams, SendOutput, SendParams, ShutdownOutput, SteerOutput,
    SteerParams, TodoEntry, TokensOutput, ToolCallView, UsageOutput, UsedTokens,
};
pub use lifecycle::{
    ExportAgentOutput, ExportAgentParams, ForkAgentOutput, ForkAgentParams, ImportAgentOutput,
    ImportAgentParams, ListSessionsOutput, ListSessionsParams, RenameAgentOutput, RenameAgentParams,
    RollbackAgentOutput, RollbackAgentParams, SessionSummary, SnapshotDocument, SnapshotExtras,
    SnapshotImage, SnapshotMessage, SnapshotToolCall, UndoTurnOutput, UndoTurnParams,
};
pub use permissions::{
    AgentOutput, ChildrenOutput, GrantView, HostSetView, LimitView, NameSetView, PermissionsOutput,
    ResourceUsageView, SetPermissionsParams,
};
pub use scalars::{Count, OnRestart, PageOffset, PageSize, RequestIdParam};

use crate::Door;

/// Invokes another macro with the method list. Each entry has the form `/// documentation` `Name call = "wire_name" at
/// Door for Access: Params => Output;`, where `of field` after the [`Access`](crate::methods::Access) names the
/// parameter with the id of the agent that a daemon method acts on.
#[macro_export]
macro_rules! for_each_method {
    ($with:ident) => {
        $with! {
            /// Creates an agent and returns its URL and capability token.
            CreateAgent create_agent = "create_agent"
                at Daemon for Anyone: CreateAgentParams => CreateAgentOutput;
            /// Destroys an agent and its descendants. Running turns are cancelled and queued sends are answered.
            /// `success` is false when the agent does not exist.
            DestroyAgent destroy_agent = "destroy_agent"
                at Daemon for Subtree of agent_id: DestroyAgentParams => DestroyAgentOutput;
            /// Lists the agents in order of creation.
            ListAgents list_agents = "list_agents"
                at Daemon for Anyone: ListAgentsParams => ListAgentsOutput;
            /// Lists the stored agents in order of creation, including those asleep. Does not wake any of them.
            ListSessions list_sessions = "list_sessions"
                at Daemon for Anyone: ListSessionsParams => ListSessionsOutput;
            /// Creates a copy of an agent with its first messages. The copy has the same system prompt, permissions,
            /// working directory, model and parent, its own token, and usage counters at zero.
            ForkAgent fork_agent = "fork_agent"
                at Daemon for Reach("agent_create") of agent_id: ForkAgentParams => ForkAgentOutput;
            /// Removes the newest messages from an agent's context. Side effects of tools are not undone. Rejected
            /// while a turn is running or queued.
            RollbackAgent rollback_agent = "rollback_agent"
                at Daemon for Reach("agent_send") of agent_id: RollbackAgentParams => RollbackAgentOutput;
            /// Restores the files that the file tools of a turn changed, all or nothing; the default is the latest turn
            /// that changed files. Refused with the names if a file has changed since, and while a turn is running or
            /// queued. Changes made by commands are not undone.
            UndoTurn undo_turn = "undo_turn"
                at Daemon for Reach("agent_send") of agent_id: UndoTurnParams => UndoTurnOutput;
            /// Changes an agent's id. Everything else stays the same, including its token; the old id becomes free.
            RenameAgent rename_agent = "rename_agent"
                at Daemon for Reach("agent_create") of agent_id: RenameAgentParams => RenameAgentOutput;
            /// Exports an agent as one JSON session document, which `import_agent` accepts. It contains no token.
            ExportAgent export_agent = "export_agent"
                at Daemon for Reach("agent_status") of agent_id: ExportAgentParams => ExportAgentOutput;
            /// Creates an agent from a session document: the output of `export_agent`, or a session file of the
            /// original NEXUS3. The agent has no parent and never gets more permissions than the document states:
            /// `yolo` becomes `trusted`, an unknown preset becomes `sandboxed`. A rejected import changes nothing.
            /// Admin only.
            ImportAgent import_agent = "import_agent"
                at Daemon for Admin: ImportAgentParams => ImportAgentOutput;
            /// Lists the tool calls that wait for an approval, over all agents. An agent sees those of its descendants, and
            /// needs the tool `approvals_list`.
            ListApprovals list_approvals = "list_approvals"
                at Daemon for Anyone: ListApprovalsParams => ListApprovalsOutput;
            /// Allows or denies a tool call that waits for an approval. The first answer wins; a later one is refused with
            /// the first. An agent answers for its descendants, within what it may grant, and needs the tool
            /// `approvals_answer`.
            AnswerApproval answer_approval = "answer_approval"
                at Daemon for Anyone: AnswerApprovalParams => AnswerApprovalOutput;
            /// Stops the daemon. It accepts no new turns; running turns have the grace period to finish.
            ShutdownServer shutdown_server = "shutdown_server"
                at Daemon for Admin: NoParams => ShutdownServerOutput;
            /// Returns the list of methods as an OpenRPC document.
            Discover discover = "rpc.discover"
                at Daemon for Anyone: NoParams => DiscoverOutput;
            /// Sends a message to an agent and returns its response when the turn has ended. An agent runs one turn at
            /// a time; further messages are queued in order. The turn continues when the client disconnects. Repeating
            /// a `request_id` with the same content joins that turn or returns its stored response, also after a
            /// restart of the daemon. With `Accept: text/event-stream` the turn's events are streamed; the last one,
            /// `response`, holds the JSON-RPC response.
            Send send = "send"
                at Agent for SelfOrReach("agent_send"): SendParams => SendOutput;
            /// Cancels a running or queued `send`, which then returns the partial text.
            Cancel cancel = "cancel"
                at Agent for SelfOrReach("agent_cancel"): CancelParams => CancelOutput;
            /// Adds an instruction to the running turn. The model reads it at its next call.
            Steer steer = "steer"
                at Agent for SelfOrReach("agent_send"): SteerParams => SteerOutput;
            /// Shortens an agent's context: a model summarizes older messages; when that fails, the oldest are dropped.
            /// The newest messages, the system prompt and pinned messages stay. Queued in order with the sends. Message
            /// indexes change to those of the shorter context.
            Compact compact = "compact"
                at Agent for SelfOrReach("agent_send"): CompactParams => CompactOutput;
            /// Marks an agent as finished. The daemon stops when an admin has marked every agent.
            Shutdown shutdown = "shutdown"
                at Agent for SelfOrReach("agent_cancel"): NoParams => ShutdownOutput;
            /// Returns the token counts of an agent's context and the tokens its models have used.
            GetTokens get_tokens = "get_tokens"
                at Agent for SelfOrReach("agent_status"): NoParams => TokensOutput;
            /// Describes an agent's context.
            GetContext get_context = "get_context"
                at Agent for SelfOrReach("agent_status"): NoParams => ContextOutput;
            /// Returns a page of an agent's messages, also while a turn is running.
            GetMessages get_messages = "get_messages"
                at Agent for SelfOrReach("agent_status"): MessagesParams => MessagesOutput;
            /// Returns one agent in full: its position in the tree, its tools and its resource usage.
            GetAgent get_agent = "get_agent"
                at Agent for SelfOrReach("agent_status"): NoParams => AgentOutput;
            /// Lists an agent's children in order of creation.
            ListChildren list_children = "list_children"
                at Agent for SelfOrReach("agent_list"): NoParams => ChildrenOutput;
            /// Explains what an agent may currently do and grant: every limit with its reason and the agent that set
            /// it.
            GetPermissions get_permissions = "get_permissions"
                at Agent for SelfOrReach("agent_status"): NoParams => PermissionsOutput;
            /// Changes an agent's permissions, within what its parent may grant. Takes effect at the next tool call of
            /// the agent and of its descendants. For admins and ancestors.
            SetPermissions set_permissions = "set_permissions"
                at Agent for Reach("agent_create"): SetPermissionsParams => PermissionsOutput;
        }
    };
}

/// Parameter and result types of a method; implemented by one unit struct per entry, see [`spec`].
pub trait MethodSpec {
    /// The method.
    const METHOD: Method;
    /// Parameters.
    type Params: serde::Serialize + serde::de::DeserializeOwned + Send + Sync;
    /// Result.
    type Output: serde::Serialize + serde::de::DeserializeOwned + Send;
}

macro_rules! define_methods {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        /// A method of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $( $(#[doc = $doc])* $spec, )*
        }

        impl Method {
            /// All methods, in the order of the list.
            pub const ALL: &'static [Method] = &[ $( Method::$spec, )* ];

            /// Name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Method::$spec => $name, )* }
            }

            /// The door the method is called at.
            #[must_use]
            pub fn door(self) -> Door {
                match self { $( Method::$spec => Door::$door, )* }
            }

            /// Who may call the method.
            #[must_use]
            pub const fn access(self) -> Access {
                match self { $( Method::$spec => Access::$access $(($tool))?, )* }
            }

            /// Description for users: the doc comment of the entry.
            #[must_use]
            pub fn doc(self) -> &'static str {
                match self { $( Method::$spec => concat!($( $doc, "\n" ),*).trim_ascii(), )* }
            }

            /// Looks up a method by its name on the wire.
            #[must_use]
            pub fn find(name: &str) -> Option<Method> {
                match name { $( $name => Some(Method::$spec), )* _ => None }
            }
        }

        /// One unit struct per method, which names its parameter and result types.
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
