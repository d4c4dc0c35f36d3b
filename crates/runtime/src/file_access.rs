//! File access of agents: judges effects, records the identity of granted directories, reads images for clients. The
//! identity is recorded with the grant; that of a directory which did not exist then, at its first use.

use agent::journal::AgentState;
use agent::permission::{
    CallText, Decision, Denial, DirectoryIdentity, Effect, FilePath, FilePermit, Grantor, Permissions, Permit,
};
use agent::{Fault, FaultKind, Image};

use crate::admission::shutting_down;
use crate::handle::{AgentHandle, Shared};
use crate::lineage::LineageNode;
use crate::pool::Pool;

impl Pool {
    /// Returns the identities of the directories that permissions name: the recorded ones, else the current ones.
    pub(crate) fn identify_directories(
        &self,
        permissions: &Permissions,
        recorded: &[DirectoryIdentity],
    ) -> Vec<DirectoryIdentity> {
        let find = |path: &FilePath| recorded.iter().find(|identity| identity.path == *path).cloned();
        let identify = |directory: &FilePath| {
            find(directory).or_else(|| {
                let current = self.outside.workspace.identify_directory(directory)?;
                find(&current.path).or(Some(current))
            })
        };
        permissions.directories().iter().filter_map(identify).collect()
    }
}

impl LineageNode {
    /// Copies the identities of the granted directories to the state that the store persists.
    pub(crate) fn copy_identities(&self, state: &mut AgentState) {
        state.identities.clone_from(&self.permissions().may.identities);
    }
}

impl Shared {
    /// Decides on a tool call with the permissions of the agent as they are now.
    pub(crate) fn review_call(
        &self,
        effects: &[Effect],
        call: CallText<'_>,
        approved_by: Option<Grantor>,
    ) -> Decision {
        match self.node.review(effects, call, approved_by) {
            Decision::Allowed(permit) if self.record_identities(&permit) => {
                self.node.review(effects, call, approved_by)
            }
            decision => decision,
        }
    }

    /// Authorizes reading a file for the agent.
    fn authorize_read(&self, file: FilePath) -> Result<Permit, Denial> {
        self.authorize_files(&[Effect::Read(file)], None)
    }

    /// Authorizes writing files for the agent; the permit has them in this order. `approved_by` is the authority behind
    /// writes that need an approval.
    pub(crate) fn authorize_writes(
        &self,
        files: Vec<FilePath>,
        approved_by: Option<Grantor>,
    ) -> Result<Permit, Denial> {
        let effects: Vec<_> = files.into_iter().map(Effect::Write).collect();
        self.authorize_files(&effects, approved_by)
    }

    fn authorize_files(&self, effects: &[Effect], approved_by: Option<Grantor>) -> Result<Permit, Denial> {
        match self.review_call(effects, CallText { tool: "", arguments: "" }, approved_by) {
            Decision::Allowed(permit) => Ok(permit),
            Decision::Denied(denial) => Err(denial),
            Decision::Ask(question) => Err(question.into_denial()),
        }
    }

    /// Records the identities of the permitting directories that have none yet; returns whether there were any.
    fn record_identities(&self, permit: &Permit) -> bool {
        let new: Vec<_> = permit.files().filter_map(|file| self.identify_root(file)).collect();
        if new.is_empty() {
            return false;
        }
        self.node.add_identities(&new);
        self.change_enqueued_state(|state| self.node.copy_identities(state));
        true
    }

    /// Identifies the permitting directory of a file, unless its identity is recorded, or a directory above it has been
    /// replaced.
    fn identify_root(&self, file: &FilePermit) -> Option<DirectoryIdentity> {
        if file.is_identified() || file.path.root.as_str() == "/" {
            return None;
        }
        let workspace = &self.pool.upgrade()?.outside.workspace;
        let current = workspace.identify_directory(&file.path.root)?;
        let is_recorded = file.identities.iter().any(|recorded| recorded.path == current.path);
        let holds = |recorded: &DirectoryIdentity| {
            workspace.identify_directory(&recorded.path).as_ref() == Some(recorded)
        };
        (!is_recorded && file.identities.iter().all(holds)).then_some(current)
    }
}

impl AgentHandle {
    /// Reads an image file that the agent may read.
    ///
    /// # Errors
    /// When permission is denied, the read fails, or the file is not a supported image.
    pub async fn read_image(&self, path: &str) -> Result<Image, Fault> {
        let invalid = |text: String| Fault::new(FaultKind::Invalid, text);
        let file = FilePath::resolve(path, &self.node().cwd).map_err(|fault| invalid(fault.to_string()))?;
        let permit = self.shared.authorize_read(file);
        let permit = permit.map_err(|denial| Fault::denied(denial.dimension.name(), denial.text))?;
        let pool = self.shared.pool.upgrade().ok_or_else(shutting_down)?;
        let image_path = path.to_owned();
        let read = move || {
            let bytes = pool.outside.workspace.read_file(&image_path, permit, Image::BYTES_MAX)?;
            Image::parse(bytes).map_err(|error| format!("{image_path} {error}"))
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map_err(invalid)
    }
}
