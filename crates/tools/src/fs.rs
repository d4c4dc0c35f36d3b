//! File tools. `beneath_root.rs` opens files without leaving the directory that permits them.

mod append_file;
mod beneath_root;
mod copy;
mod delete;
mod diff;
mod edit;
mod glob;
mod ignore_rules;
mod info;
mod list;
mod mkdir;
mod r#move;
mod newlines;
mod page;
mod patch;
mod read_file;
mod search;
mod write;
mod write_file;

pub(crate) use beneath_root::{
    DirectoryHandle, Hiding, ReadableFile, ReadableRepository, ReadableTree, RemovableEntry,
    RepositoryDirectories, WritableFile, hiding_of, identify_directory, is_blocked_alias, is_credential,
    real_path, restore,
};

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[
    tool::<read_file::ReadFile>(),
    tool::<list::List>(),
    tool::<glob::Glob>(),
    tool::<search::Search>(),
    tool::<edit::Edit>(),
    tool::<write_file::WriteFile>(),
    tool::<append_file::AppendFile>(),
    tool::<patch::Patch>(),
    tool::<mkdir::MakeDirectory>(),
    tool::<r#move::Move>(),
    tool::<copy::Copy>(),
    tool::<delete::Delete>(),
    tool::<info::Info>(),
];

/// Maximum size of the content read or written by one call.
const CONTENT_BYTES_MAX: usize = 10 << 20;
