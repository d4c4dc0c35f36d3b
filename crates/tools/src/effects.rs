//! The effects that tools declare, by type. A type says which effects a call has and which handle the permitted call
//! gets for them; a tool has no other access to files and agents.

use std::sync::Arc;

use agent::journal::Serial;
use agent::outside::{CachedResults, CallSite, KeyValues, Peers, PlanKeeper, ToolContext};
use agent::permission::{CommandEffect, Confinement, Effect, FilePath};
use agent::{AgentId, ToolOutcome};

use crate::commands::PermittedCommand;
use crate::fs::{ReadableFile, ReadableRepository, ReadableTree, RemovableEntry, WritableFile};
use crate::net::{PermittedConnection, RequestedUrl};
use crate::process::{BackgroundProcess, ProcessTable};

/// The effects of a tool call.
pub(crate) trait ToolEffects: Send + 'static {
    /// Whether the call writes: changes files or agents. Then the class of its tool is not `Pure`.
    const ARE_WRITES: bool;

    /// The access that the permitted call gets.
    type Handle: Send + 'static;

    /// The effects for the judge.
    fn list(&self) -> Vec<Effect>;

    /// The same for a call on a background process, whose effects depend on the process.
    fn list_on(&self, _processes: &ProcessTable) -> Vec<Effect> {
        self.list()
    }

    /// Takes the handle of the permitted call.
    fn open(self, granted: Granted) -> Result<Self::Handle, ToolOutcome>;
}

/// The context of a permitted call. Opaque outside this file: a tool with effects of its own gets nothing from it.
pub(crate) struct Granted(ToolContext);

impl Granted {
    pub(crate) fn new(context: ToolContext) -> Self {
        Self(context)
    }
}

/// No effects: the tool computes its result.
pub(crate) struct NoEffects;

impl ToolEffects for NoEffects {
    const ARE_WRITES: bool = false;
    type Handle = ();

    fn list(&self) -> Vec<Effect> {
        Vec::new()
    }

    fn open(self, _granted: Granted) -> Result<(), ToolOutcome> {
        Ok(())
    }
}

/// Reads one file.
pub(crate) struct FileRead(RequestedFile);

impl FileRead {
    /// Resolves the path as the model wrote it.
    pub(crate) fn new(path: &str, site: &CallSite<'_>) -> Result<Self, String> {
        RequestedFile::resolve(path, site).map(Self)
    }
}

impl ToolEffects for FileRead {
    const ARE_WRITES: bool = false;
    type Handle = ReadableFile;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Read(self.0.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<ReadableFile, ToolOutcome> {
        ReadableFile::from_permit(&granted.0.permit, &self.0.requested)
    }
}

/// Reads a directory and everything below it, or one file.
pub(crate) struct TreeRead(RequestedFile);

impl TreeRead {
    /// Resolves the path as the model wrote it; the working directory if it wrote none.
    pub(crate) fn new(path: Option<&str>, site: &CallSite<'_>) -> Result<Self, String> {
        RequestedFile::resolve(path.unwrap_or("."), site).map(Self)
    }
}

impl ToolEffects for TreeRead {
    const ARE_WRITES: bool = false;
    type Handle = ReadableTree;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Read(self.0.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<ReadableTree, ToolOutcome> {
        ReadableTree::from_permit(&granted.0.permit, &self.0.requested)
    }
}

/// Reads the git repository of a file or directory: what is at or above it within the directory that permits it.
pub(crate) struct RepositoryRead {
    file: RequestedFile,
    is_path_given: bool,
}

impl RepositoryRead {
    /// Resolves the path as the model wrote it; the repository of the working directory if it wrote none.
    pub(crate) fn new(path: Option<&str>, site: &CallSite<'_>) -> Result<Self, String> {
        let file = RequestedFile::resolve(path.unwrap_or("."), site)?;
        Ok(Self { file, is_path_given: path.is_some() })
    }
}

impl ToolEffects for RepositoryRead {
    const ARE_WRITES: bool = false;
    type Handle = ReadableRepository;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Read(self.file.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<ReadableRepository, ToolOutcome> {
        ReadableRepository::from_permit(&granted.0.permit, &self.file.requested, self.is_path_given)
    }
}

/// Writes one file.
pub(crate) struct FileWrite(RequestedFile);

impl FileWrite {
    /// Resolves the path as the model wrote it.
    pub(crate) fn new(path: &str, site: &CallSite<'_>) -> Result<Self, String> {
        RequestedFile::resolve(path, site).map(Self)
    }
}

impl ToolEffects for FileWrite {
    const ARE_WRITES: bool = true;
    type Handle = WritableFile;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Write(self.0.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<WritableFile, ToolOutcome> {
        let file = WritableFile::from_permit(&granted.0.permit, &self.0.requested)?;
        Ok(file.recorded_by(&granted.0.changes))
    }
}

/// Runs a command.
pub(crate) struct CommandRun(CommandEffect);

impl CommandRun {
    /// A command in the sandbox. Resolves the working directory as the model wrote it; by default the agent's own.
    pub(crate) fn new(
        program: &str,
        arguments: &[String],
        cwd: Option<&str>,
        site: &CallSite<'_>,
    ) -> Result<Self, String> {
        if program.is_empty() {
            return Err("Invalid input: field `command`: the program is missing".to_owned());
        }
        let resolve = |cwd: &str| {
            FilePath::resolve(cwd, site.cwd).map_err(|fault| format!("Invalid input: field `cwd`: {fault}"))
        };
        let cwd = cwd.map_or_else(|| Ok(site.cwd.clone()), resolve)?;
        Ok(Self(CommandEffect::sandboxed(program, arguments, cwd)))
    }

    /// The command outside the sandbox, if the model asked for it.
    pub(crate) fn unsandboxed_if(mut self, is_asked: Option<bool>) -> Self {
        if is_asked == Some(true) {
            self.0.confinement = Confinement::Unsandboxed;
        }
        self
    }
}

impl ToolEffects for CommandRun {
    const ARE_WRITES: bool = true;
    type Handle = PermittedCommand;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Run(self.0.clone())]
    }

    fn open(self, granted: Granted) -> Result<PermittedCommand, ToolOutcome> {
        PermittedCommand::from_permit(granted.0.permit.commands.into_iter().next())
    }
}

/// Connects to the host of a URL, and to those it redirects to.
pub(crate) struct HostConnection {
    url: RequestedUrl,
    /// The calling agent, for the audit.
    agent: AgentId,
}

impl HostConnection {
    /// Parses the URL as the model wrote it.
    pub(crate) fn new(url: &str, site: &CallSite<'_>) -> Result<Self, String> {
        let url = RequestedUrl::parse(url).map_err(|why| format!("Invalid input: field `url`: {why}"))?;
        Ok(Self { url, agent: site.agent.clone() })
    }
}

impl ToolEffects for HostConnection {
    /// A tool that sends more than reads is not `Pure` by its own declaration.
    const ARE_WRITES: bool = false;
    type Handle = PermittedConnection;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Connect(self.url.destination().clone())]
    }

    fn open(self, granted: Granted) -> Result<PermittedConnection, ToolOutcome> {
        let permit = granted.0.permit.connections.into_iter().next();
        PermittedConnection::from_permit(permit, self.url, self.agent)
    }
}

/// Writes to a background process of the agent: judged like running its command, whose permission may have been revoked.
pub(crate) struct ProcessInput {
    agent: Serial,
    id: String,
}

impl ProcessInput {
    /// The process as the model wrote it.
    pub(crate) fn new(id: &str, site: &CallSite<'_>) -> Self {
        Self { agent: site.serial, id: id.to_owned() }
    }
}

impl ToolEffects for ProcessInput {
    const ARE_WRITES: bool = true;
    type Handle = ();

    /// None without a process: the call fails then.
    fn list(&self) -> Vec<Effect> {
        Vec::new()
    }

    fn list_on(&self, processes: &ProcessTable) -> Vec<Effect> {
        let run = |process: Arc<BackgroundProcess>| Effect::Run(process.line.command.clone());
        processes.find(self.agent, &self.id).map(run).into_iter().collect()
    }

    fn open(self, _granted: Granted) -> Result<(), ToolOutcome> {
        Ok(())
    }
}

/// Reads text files and writes them back changed.
pub(crate) struct FileEdits(Vec<RequestedFile>);

impl FileEdits {
    /// Resolves the paths as the model wrote them.
    pub(crate) fn new<'a>(
        paths: impl IntoIterator<Item = &'a str>,
        site: &CallSite<'_>,
    ) -> Result<Self, String> {
        paths.into_iter().map(|path| RequestedFile::resolve(path, site)).collect::<Result<_, _>>().map(Self)
    }
}

/// A file that a call may read and write.
pub(crate) struct EditableFile {
    pub(crate) readable: ReadableFile,
    pub(crate) writable: WritableFile,
}

impl ToolEffects for FileEdits {
    const ARE_WRITES: bool = true;
    type Handle = Vec<EditableFile>;

    fn list(&self) -> Vec<Effect> {
        let effects =
            |file: &RequestedFile| [Effect::Read(file.path.clone()), Effect::Write(file.path.clone())];
        self.0.iter().flat_map(effects).collect()
    }

    fn open(self, granted: Granted) -> Result<Vec<EditableFile>, ToolOutcome> {
        let permit = &granted.0.permit;
        let open = |(index, file): (usize, RequestedFile)| {
            let readable = ReadableFile::nth_of_permit(permit, index, &file.requested)?;
            let writable = WritableFile::nth_of_permit(permit, index, &file.requested)?;
            Ok(EditableFile { readable, writable: writable.recorded_by(&granted.0.changes) })
        };
        self.0.into_iter().enumerate().map(open).collect()
    }
}

/// Removes a file or directory.
pub(crate) struct FileRemoval(RequestedFile);

impl FileRemoval {
    /// Resolves the path as the model wrote it.
    pub(crate) fn new(path: &str, site: &CallSite<'_>) -> Result<Self, String> {
        RequestedFile::resolve(path, site).map(Self)
    }
}

impl ToolEffects for FileRemoval {
    const ARE_WRITES: bool = true;
    type Handle = RemovableEntry;

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Write(self.0.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<RemovableEntry, ToolOutcome> {
        let entry = RemovableEntry::nth_of_permit(&granted.0.permit, 0, &self.0.requested)?;
        Ok(entry.recorded_by(&granted.0.changes))
    }
}

/// Copies a file or directory.
pub(crate) struct FileCopy {
    from: RequestedFile,
    to: RequestedFile,
}

/// Moves a file or directory: a copy whose source is removed. It is read, because it can be read at its new place.
pub(crate) struct FileMove(FileCopy);

impl FileCopy {
    /// Resolves the paths as the model wrote them.
    pub(crate) fn new(from: &str, to: &str, site: &CallSite<'_>) -> Result<Self, String> {
        let from = RequestedFile::resolve_field("from", from, site)?;
        Ok(Self { from, to: RequestedFile::resolve_field("to", to, site)? })
    }

    fn open_ends(&self, granted: &Granted) -> Result<(ReadableFile, WritableFile), ToolOutcome> {
        let ToolContext { permit, changes, .. } = &granted.0;
        let from = ReadableFile::from_permit(permit, &self.from.requested)?;
        let to = WritableFile::from_permit(permit, &self.to.requested)?;
        Ok((from, to.recorded_by(changes)))
    }
}

impl FileMove {
    /// Resolves the paths as the model wrote them.
    pub(crate) fn new(from: &str, to: &str, site: &CallSite<'_>) -> Result<Self, String> {
        FileCopy::new(from, to, site).map(Self)
    }
}

impl ToolEffects for FileCopy {
    const ARE_WRITES: bool = true;
    type Handle = (ReadableFile, WritableFile);

    fn list(&self) -> Vec<Effect> {
        vec![Effect::Read(self.from.path.clone()), Effect::Write(self.to.path.clone())]
    }

    fn open(self, granted: Granted) -> Result<Self::Handle, ToolOutcome> {
        self.open_ends(&granted)
    }
}

impl ToolEffects for FileMove {
    const ARE_WRITES: bool = true;
    type Handle = (ReadableFile, RemovableEntry, WritableFile);

    fn list(&self) -> Vec<Effect> {
        let Self(copy) = self;
        [copy.list(), vec![Effect::Write(copy.from.path.clone())]].concat()
    }

    fn open(self, granted: Granted) -> Result<Self::Handle, ToolOutcome> {
        let Self(copy) = self;
        let (from, to) = copy.open_ends(&granted)?;
        let entry = RemovableEntry::nth_of_permit(&granted.0.permit, 1, &copy.from.requested)?;
        Ok((from, entry.recorded_by(&granted.0.changes), to))
    }
}

/// A file in the arguments of a call.
struct RequestedFile {
    path: FilePath,
    /// The path as the model wrote it.
    requested: String,
}

impl RequestedFile {
    /// `~` and `file://` have no special meaning.
    fn resolve(requested: &str, site: &CallSite<'_>) -> Result<Self, String> {
        Self::resolve_field("path", requested, site)
    }

    fn resolve_field(field: &str, requested: &str, site: &CallSite<'_>) -> Result<Self, String> {
        let path = FilePath::resolve(requested, site.cwd)
            .map_err(|fault| format!("Invalid input: field `{field}`: {fault}"))?;
        Ok(Self { path, requested: requested.to_owned() })
    }
}

/// Reads the cached results of the agent's earlier calls.
pub(crate) struct ResultRead;

impl ToolEffects for ResultRead {
    const ARE_WRITES: bool = false;
    type Handle = Arc<dyn CachedResults>;

    fn list(&self) -> Vec<Effect> {
        Vec::new()
    }

    fn open(self, granted: Granted) -> Result<Self::Handle, ToolOutcome> {
        Ok(granted.0.results)
    }
}

/// Reads stored values of the caller's namespace, or changes them.
pub(crate) struct ValueEffects<const ARE_WRITES: bool>;

/// Reads stored values.
pub(crate) type ValueRead = ValueEffects<false>;

/// Changes stored values.
pub(crate) type ValueChange = ValueEffects<true>;

impl<const ARE_WRITES: bool> ToolEffects for ValueEffects<ARE_WRITES> {
    const ARE_WRITES: bool = ARE_WRITES;
    type Handle = KeyValues;

    fn list(&self) -> Vec<Effect> {
        vec![if ARE_WRITES { Effect::WriteValues } else { Effect::ReadValues }]
    }

    fn open(self, granted: Granted) -> Result<KeyValues, ToolOutcome> {
        Ok(granted.0.values)
    }
}

/// Replaces the plan of the calling agent, which is part of its own state.
pub(crate) struct PlanChange;

impl ToolEffects for PlanChange {
    const ARE_WRITES: bool = true;
    type Handle = Arc<dyn PlanKeeper>;

    fn list(&self) -> Vec<Effect> {
        Vec::new()
    }

    fn open(self, granted: Granted) -> Result<Self::Handle, ToolOutcome> {
        Ok(granted.0.plan)
    }
}

/// Reads the state of agents, or changes them: creates, messages, cancels or destroys them.
pub(crate) struct AgentEffects<const ARE_WRITES: bool>(pub(crate) Vec<Effect>);

/// Reads the state of agents.
pub(crate) type AgentQuery = AgentEffects<false>;

/// Changes agents.
pub(crate) type AgentChange = AgentEffects<true>;

/// The other agents, as the calling agent sees them.
pub(crate) type PeersHandle = Arc<dyn Peers>;

impl<const ARE_WRITES: bool> ToolEffects for AgentEffects<ARE_WRITES> {
    const ARE_WRITES: bool = ARE_WRITES;
    type Handle = PeersHandle;

    fn list(&self) -> Vec<Effect> {
        self.0.clone()
    }

    fn open(self, granted: Granted) -> Result<PeersHandle, ToolOutcome> {
        Ok(granted.0.peers)
    }
}
