//! Reads git repositories: a request becomes a text in git's own format. The repository may be hostile: no hook, filter
//! or other command of it is run, and what leads out of its directories is refused. The binary calls this room in a
//! process that may read these directories, execute nothing and write nothing.

mod blame;
mod changes;
mod commit_text;
mod diff;
mod log;
mod page;
mod patch;
mod reader;
mod request;
mod revision;
mod scope;
mod show;
mod status;

pub use request::{GitOperation, GitRequest};

use self::reader::Reader;

/// Answers a request, which is JSON, with a text. `is_closed` says whether the file at an absolute path is closed to
/// agents by its name: its content is not shown, at any revision.
///
/// # Errors
/// A text for the caller: what failed, and why.
pub fn answer(request: &[u8], is_closed: fn(&str) -> bool) -> Result<Vec<u8>, String> {
    let request: GitRequest =
        serde_json::from_slice(request).map_err(|error| format!("the request is invalid: {error}"))?;
    let reader = Reader::open(&request, is_closed)?;
    let text = match &request.operation {
        GitOperation::Status { offset } => status::status(&reader, *offset),
        GitOperation::Diff { from, to, staged, offset } => {
            diff::diff(&reader, from.as_deref(), to.as_deref(), *staged, *offset)
        }
        GitOperation::Log { rev, count, offset } => log::log(&reader, rev.as_deref(), *count, *offset),
        GitOperation::Show { rev, offset } => show::show(&reader, rev, *offset),
        GitOperation::Blame { rev, start_line, end_line } => {
            blame::blame(&reader, rev.as_deref(), *start_line, *end_line)
        }
    };
    text.map(String::into_bytes)
}

/// An error as a text: the whole chain of causes on one line, of bounded length.
fn describe(error: &gix::Error) -> String {
    const CHARS_MAX: usize = 400;
    let mut causes: Vec<String> = error.iter_errors().map(ToString::to_string).collect();
    causes.dedup();
    let text = causes.join(": ").split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// Adds what failed to an error of the library.
fn failed(what: &str) -> impl Fn(gix::Error) -> String + '_ {
    move |error| format!("{what}: {}", describe(&error))
}
