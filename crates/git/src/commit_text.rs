//! A commit as `git log` writes it: id, author, date and the indented message.

use gix::bstr::ByteSlice;
use gix::date::time::CustomFormat;

use crate::failed;
use crate::page::display_line;

/// As in `git log`; the library's own format has the same fields.
const DATE: CustomFormat = CustomFormat::new("%a %b %-d %H:%M:%S %Y %z");

/// Maximum length of a message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The header and the message, without a newline at the end.
pub(crate) fn commit_text(commit: &gix::Commit<'_>) -> Result<String, String> {
    let fail = failed("the commit cannot be read");
    let decoded = commit.decode().map_err(&fail)?;
    let author = decoded.author().map_err(&fail)?;
    let mut text = format!("commit {}\n", commit.id);
    let parents: Vec<String> = commit.parent_ids().map(|id| id.shorten_or_id().to_string()).collect();
    if parents.len() > 1 {
        text.push_str(&format!("Merge: {}\n", parents.join(" ")));
    }
    let date = author.time().map(|time| time.format_or_unix(DATE)).unwrap_or_default();
    let (name, email) = (display_line(author.name), display_line(author.email));
    text.push_str(&format!("Author: {name} <{email}>\nDate:   {date}\n"));
    let is_cut = decoded.message.len() > MESSAGE_BYTES_MAX;
    let message = &decoded.message[..decoded.message.len().min(MESSAGE_BYTES_MAX)];
    let message = message.trim_end();
    let lines = message.lines().skip_while(|line| line.trim().is_empty()).collect::<Vec<_>>();
    if !lines.is_empty() {
        text.push('\n');
    }
    for line in lines {
        let line = display_line(line);
        text.push_str(format!("    {}", line.trim_end()).trim_end());
        text.push('\n');
    }
    if is_cut {
        text.push_str(&format!("    [the message has {} bytes]\n", decoded.message.len()));
    }
    text.pop();
    Ok(text)
}
