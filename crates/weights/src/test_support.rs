//! Test fixtures: a scripted file server over real sockets, and options for a fake pip.

use std::collections::VecDeque;
use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::{FakePip, HttpPeer, PeerAction, PeerRequest, http_response};
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
    peer: HttpPeer,
}

struct ServerState {
    content: Vec<u8>,
    etag: String,
    extra: String,
    replies: VecDeque<Reply>,
}

impl FileServer {
    /// Serves the content, first with these replies, then normally.
    pub(crate) fn start(content: &[u8], replies: &[Reply]) -> Self {
        let state = Arc::new(Mutex::new(ServerState {
            content: content.to_vec(),
            etag: "\"one\"".to_owned(),
            extra: String::new(),
            replies: replies.iter().cloned().collect(),
        }));
        let shared = Arc::clone(&state);
        let peer = HttpPeer::start(move |request| {
            let mut state = shared.lock().unwrap();
            let reply = state.replies.pop_front().unwrap_or(Reply::Normal);
            let end = if matches!(reply, Reply::Stall(_)) { PeerAction::Hold } else { PeerAction::Close };
            vec![PeerAction::Write(reply_bytes(request, &reply, &state)), end]
        });
        Self { base: format!("http://127.0.0.1:{}", peer.port()), state, peer }
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
        let range = |request: &PeerRequest| request.header("range").unwrap_or_default().to_owned();
        self.requests().iter().map(range).collect()
    }

    pub(crate) fn requests(&self) -> Vec<PeerRequest> {
        self.peer.log().requests.clone()
    }
}

fn reply_bytes(request: &PeerRequest, reply: &Reply, state: &ServerState) -> Vec<u8> {
    const CLOSE: &str = "Connection: close\r\n";
    if let Reply::Status(status, line) = reply {
        return http_response(&format!("{status} X"), &format!("{line}\r\n{CLOSE}"), "");
    }
    let total = state.content.len();
    let same = request.header("if-range").is_none_or(|etag| etag == state.etag);
    let requested = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let from = requested.filter(|_| same && !matches!(reply, Reply::IgnoreRange)).unwrap_or(0_usize);
    if from > 0 && from >= total {
        return http_response("416 X", CLOSE, "");
    }
    let from = if matches!(reply, Reply::WrongRange) { from.saturating_sub(1) } else { from };
    let mut headers = format!("ETag: {}\r\n{}{CLOSE}", state.etag, state.extra);
    if from > 0 {
        headers += &format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1);
    }
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let mut response = http_response(status, &headers, &state.content[from..]);
    if let Reply::Cut(bytes) | Reply::Stall(bytes) = reply {
        response.truncate(response.len() - (total - from).saturating_sub(*bytes));
    }
    response
}

/// Returns options that download with this pip.
pub(crate) fn pip_options(pip: &FakePip) -> PullOptions {
    PullOptions { python: pip.python(), ..options() }
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
