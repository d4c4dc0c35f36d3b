//! Test fixtures: a scripted file server over real sockets, and a fake Python whose pip copies wheels made by the test.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Cursor, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::WeightsFault;
use crate::catalog::ModelKind;
use crate::checksum::{Checksum, ChecksumHasher};
use crate::model_directory::{InstalledModel, ModelDirectory, PullSpec};
use crate::options::PullOptions;
use crate::progress::PullProgress;
use crate::source::DownloadSource;

/// Bytes that look like weights.
pub(crate) fn weights(bytes: usize) -> Vec<u8> {
    let noise = (0..bytes.saturating_sub(4)).map(|index| u8::try_from(index * 31 % 251).unwrap());
    b"GGUF".iter().copied().chain(noise).collect()
}

pub(crate) fn checksum_of(bytes: &[u8]) -> Checksum {
    let mut hasher = ChecksumHasher::default();
    hasher.update(bytes);
    hasher.checksum()
}

/// Returns a spec for exactly these bytes.
pub(crate) fn pull_spec(bytes: &[u8], sources: Vec<DownloadSource>) -> PullSpec {
    PullSpec {
        id: "test".parse().unwrap(),
        kind: ModelKind::Chat,
        bytes: Some(bytes.len() as u64),
        checksum: Some(checksum_of(bytes)),
        licence: Some("MIT".to_owned()),
        sources,
    }
}

/// Returns options with minimal delays.
pub(crate) fn options() -> PullOptions {
    PullOptions {
        backoff_first: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        sync_every_bytes: 1,
        spare_bytes: 0,
        ..PullOptions::default()
    }
}

/// A model directory in a temporary directory.
pub(crate) struct TestDirectory {
    pub(crate) models: ModelDirectory,
    pub(crate) folder: tempfile::TempDir,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let models = ModelDirectory::open(&folder.path().join("models")).unwrap();
        Self { models, folder }
    }

    pub(crate) async fn pull(
        &self,
        spec: &PullSpec,
        options: &PullOptions,
    ) -> Result<InstalledModel, WeightsFault> {
        self.models.pull(spec, options, &mut |_| {}).await
    }

    /// Pulls and collects the progress events.
    pub(crate) async fn pull_with_progress(
        &self,
        spec: &PullSpec,
        options: &PullOptions,
    ) -> (Result<InstalledModel, WeightsFault>, Vec<PullProgress>) {
        let mut events = Vec::new();
        let pulled = self.models.pull(spec, options, &mut |progress| events.push(progress)).await;
        (pulled, events)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.models.folder().join(name)
    }

    /// Returns the names of all files in the directory except the lock.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.models.folder()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "test.lock");
        names.sort();
        names
    }
}

/// Reply of the server to one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Correct response.
    Normal,
    /// The complete file regardless of the requested range.
    IgnoreRange,
    /// So many bytes, then the connection is closed.
    Cut(usize),
    /// So many bytes, then silence.
    Stall(usize),
    /// A status and a header line.
    Status(u16, &'static str),
    /// Another range than requested.
    WrongRange,
}

/// A file server on loopback.
pub(crate) struct FileServer {
    pub(crate) base: String,
    state: Arc<Mutex<ServerState>>,
}

struct ServerState {
    content: Vec<u8>,
    etag: String,
    extra: String,
    replies: VecDeque<Reply>,
    requests: Vec<String>,
    stalled: Vec<TcpStream>,
}

impl FileServer {
    /// Serves the content, first with these replies, then normally.
    pub(crate) fn start(content: &[u8], replies: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = ServerState {
            content: content.to_vec(),
            etag: "\"one\"".to_owned(),
            extra: String::new(),
            replies: replies.iter().cloned().collect(),
            requests: Vec::new(),
            stalled: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(connection, &shared));
            }
        });
        Self { base, state }
    }

    pub(crate) fn options(&self) -> PullOptions {
        PullOptions { hub_base: Some(self.base.clone()), ..options() }
    }

    /// Replaces the served file.
    pub(crate) fn replace_content(&self, content: &[u8], etag: &str) {
        let mut state = self.state.lock().unwrap();
        (state.content, state.etag) = (content.to_vec(), etag.to_owned());
    }

    /// Sets an additional header line of successful responses.
    pub(crate) fn add_header(&self, line: &str) {
        self.state.lock().unwrap().extra = format!("{line}\r\n");
    }

    /// Returns the requested ranges; empty for the complete file.
    pub(crate) fn ranges(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.requests.iter().map(|request| header(request, "range").unwrap_or_default()).collect()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

pub(crate) fn header(request: &str, name: &str) -> Option<String> {
    request.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// Serves one request per connection.
fn serve(connection: TcpStream, state: &Mutex<ServerState>) {
    let mut head = String::new();
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let mut state = state.lock().unwrap();
    state.requests.push(head.clone());
    let reply = state.replies.pop_front().unwrap_or(Reply::Normal);
    let mut connection = connection;
    // The client may have disconnected.
    let _ = write_reply(&mut connection, &head, &reply, &state);
    if matches!(reply, Reply::Stall(_)) {
        state.stalled.push(connection);
    }
}

fn write_reply(out: &mut TcpStream, head: &str, reply: &Reply, state: &ServerState) -> std::io::Result<()> {
    if let Reply::Status(status, line) = reply {
        return write!(
            out,
            "HTTP/1.1 {status} X\r\n{line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let total = state.content.len();
    let same = header(head, "if-range").is_none_or(|etag| etag == state.etag);
    let requested =
        header(head, "range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let from = requested.filter(|_| same && !matches!(reply, Reply::IgnoreRange)).unwrap_or(0_usize);
    if from > 0 && from >= total {
        return write!(out, "HTTP/1.1 416 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let from = if matches!(reply, Reply::WrongRange) { from.saturating_sub(1) } else { from };
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    write!(out, "HTTP/1.1 {status}\r\nETag: {}\r\n{}", state.etag, state.extra)?;
    if from > 0 {
        write!(out, "Content-Range: bytes {from}-{}/{total}\r\n", total - 1)?;
    }
    write!(out, "Content-Length: {}\r\nConnection: close\r\n\r\n", total - from)?;
    let body = &state.content[from..];
    let body = match reply {
        Reply::Cut(bytes) | Reply::Stall(bytes) => &body[..body.len().min(*bytes)],
        _ => body,
    };
    out.write_all(body)?;
    out.flush()
}

/// A fake Python whose pip copies wheels from its directory.
pub(crate) struct FakePip {
    folder: PathBuf,
}

const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$PWD|$*" >> "$here/calls"
for last; do :; done
while [ $# -gt 0 ]; do if [ "$1" = -d ]; then out=$2; fi; shift; done
if [ -f "$here/before" ]; then . "$here/before"; fi
if [ ! -f "$here/$last.whl" ]; then echo "ERROR: No matching distribution found for $last" >&2; exit 1; fi
cp "$here/$last.whl" "$out/"
"#;

impl FakePip {
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = folder.join("pip");
        std::fs::create_dir(&folder).unwrap();
        // Written by another process: a file that is open for writing cannot be executed, and a child forked by a
        // parallel test could inherit this process's descriptor.
        let write = "cat > \"$0\" && chmod 700 \"$0\"";
        let mut shell = Command::new("sh");
        let mut shell =
            shell.args(["-c", write]).arg(folder.join("python3")).stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        Self { folder }
    }

    pub(crate) fn options(&self) -> PullOptions {
        PullOptions { python: self.folder.join("python3"), ..options() }
    }

    /// Sets shell lines that run before the wheel is copied; `$last` is the requirement, `$out` the output directory.
    pub(crate) fn before(&self, lines: &str) {
        std::fs::write(self.folder.join("before"), lines).unwrap();
    }

    pub(crate) fn add_wheel(&self, requirement: &str, wheel: &[u8]) {
        std::fs::write(self.folder.join(format!("{requirement}.whl")), wheel).unwrap();
    }

    /// Returns the calls: working directory and arguments.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the requested requirements.
    pub(crate) fn requirements(&self) -> Vec<String> {
        let calls = self.calls();
        calls.iter().map(|call| call.rsplit(' ').next().unwrap().to_owned()).collect()
    }
}

/// Creates a zip file with these members.
pub(crate) fn wheel(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, bytes) in members {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}
