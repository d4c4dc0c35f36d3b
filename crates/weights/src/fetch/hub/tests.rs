//! Tests of hub downloads from a misbehaving server.

use std::time::Duration;

use crate::WeightsFault;
use crate::model_directory::PullSpec;
use crate::options::PullOptions;
use crate::progress::PullStep;
use crate::source::{DownloadSource, HubFile};
use crate::test_support::{FileServer, Reply, TestDirectory, checksum_of, pull_spec, weights};

fn source() -> DownloadSource {
    DownloadSource::Hub(HubFile::new("owner/repo", "main", "dir/test.gguf").unwrap())
}

fn failure_text(fault: WeightsFault) -> String {
    match fault {
        WeightsFault::AllFailed { attempts, .. } => attempts[0].why.clone(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn file_is_downloaded_with_monotonic_progress() {
    let content = weights(300_000);
    let server = FileServer::start(&content, &[]);
    let directory = TestDirectory::new();
    let (pulled, events) =
        directory.pull_with_progress(&pull_spec(&content, vec![source()]), &server.options()).await;
    let pulled = pulled.unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(pulled.source, "hub:owner/repo@main:dir/test.gguf");
    assert!(server.requests()[0].head.starts_with("GET /owner/repo/resolve/main/dir/test.gguf HTTP/1.1"));
    assert!(events.is_sorted_by_key(|progress| progress.done_bytes));
    let last = events.last().unwrap();
    assert_eq!((last.done_bytes, last.total_bytes), (300_000, Some(300_000)));
    assert_eq!(directory.names(), ["test.gguf", "test.json"]);
}

#[tokio::test]
async fn interrupted_download_resumes_with_a_range_request() {
    let content = weights(200_000);
    let server =
        FileServer::start(&content, &[Reply::Cut(1), Reply::Cut(70_000), Reply::Cut(0), Reply::Cut(50_000)]);
    let directory = TestDirectory::new();
    let pulled = directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert_eq!(pulled.checksum, checksum_of(&content));
    assert_eq!(server.ranges(), ["", "bytes=1-", "bytes=70001-", "bytes=70001-", "bytes=120001-"]);
    assert!(server.requests()[1..].iter().all(|request| request.header("if-range") == Some("\"one\"")));
}

#[tokio::test]
async fn download_resumes_after_a_cut_at_any_byte() {
    let content = weights(40);
    for cut in 0..content.len() {
        let server = FileServer::start(&content, &[Reply::Cut(cut)]);
        let directory = TestDirectory::new();
        let pulled = directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
        assert_eq!(std::fs::read(pulled.path).unwrap(), content, "{cut}");
    }
}

#[tokio::test]
async fn stalled_download_fails_after_retries_and_can_resume() {
    let content = weights(90_000);
    let stalls = [Reply::Stall(30_000), Reply::Stall(0), Reply::Stall(0)];
    let server = FileServer::start(&content, &stalls);
    let directory = TestDirectory::new();
    let options =
        PullOptions { idle_timeout: Duration::from_millis(150), retries_max: 2, ..server.options() };
    let fault = directory.pull(&pull_spec(&content, vec![source()]), &options).await.unwrap_err();
    assert!(failure_text(fault).contains("tried 3 times"));
    assert_eq!(directory.names(), ["test.part", "test.part.json"]);
    let pulled = directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(server.ranges().last().unwrap(), "bytes=30000-");
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_the_backoff_limit() {
    let content = weights(1_000);
    let replies =
        [Reply::Status(503, "Retry-After: 99999"), Reply::Status(429, "X: y"), Reply::Status(500, "X: y")];
    let server = FileServer::start(&content, &replies);
    let directory = TestDirectory::new();
    let options = PullOptions { backoff_max: Duration::from_millis(7), ..server.options() };
    let (pulled, events) = directory.pull_with_progress(&pull_spec(&content, vec![source()]), &options).await;
    assert!(pulled.is_ok());
    let waits: Vec<u64> = events
        .iter()
        .filter_map(|progress| match &progress.step {
            PullStep::Waiting { wait_ms, .. } => Some(*wait_ms),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [7, 2, 4]);
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    for (status, line) in [
        (404, "X: y"),
        (401, "X: y"),
        (403, "X: y"),
        (302, "X: y"),
        (302, "Location: http://example.invalid/x"),
        (418, "X: y"),
    ] {
        let server = FileServer::start(b"GGUF", &[Reply::Status(status, line)]);
        let directory = TestDirectory::new();
        let fault = directory.pull(&pull_spec(b"GGUF", vec![source()]), &server.options()).await.unwrap_err();
        assert_eq!(server.requests().len(), 1, "{status} {line}: {fault}");
        assert!(directory.names().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn redirects_are_followed_up_to_a_limit() {
    let content = weights(1_000);
    let redirect = Reply::Status(302, "Location: /elsewhere?signature=secret");
    let server = FileServer::start(&content, std::slice::from_ref(&redirect));
    let directory = TestDirectory::new();
    directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert!(server.requests()[1].head.starts_with("GET /elsewhere?signature=secret "));
    let server = FileServer::start(&content, &vec![redirect; 20]);
    let fault = failure_text(
        TestDirectory::new().pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err(),
    );
    assert!(fault.contains("redirects more than 5 times") && !fault.contains("secret"), "{fault}");
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn changed_file_restarts_the_download() {
    let (old, new) = (weights(90_000), [&b"GGUF"[..], &vec![7; 89_996]].concat());
    let server = FileServer::start(&old, &[Reply::Cut(40_000), Reply::Cut(0)]);
    let directory = TestDirectory::new();
    let spec = PullSpec { checksum: None, bytes: None, ..pull_spec(&old, vec![source()]) };
    let options = PullOptions { retries_max: 0, ..server.options() };
    assert!(directory.pull(&spec, &options).await.is_err());
    server.replace_content(&new, "\"two\"");
    let pulled = directory.pull(&spec, &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), new);
}

#[tokio::test]
async fn ignored_or_wrong_ranges_restart_the_download() {
    let content = weights(90_000);
    for second in [Reply::IgnoreRange, Reply::WrongRange] {
        let server = FileServer::start(&content, &[Reply::Cut(40_000), second]);
        let directory = TestDirectory::new();
        let pulled = directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
        assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    }
}

#[tokio::test]
async fn wrong_size_or_checksum_is_rejected_before_the_download() {
    let content = weights(50_000);
    let server = FileServer::start(&content, &[]);
    let directory = TestDirectory::new();
    let smaller = PullSpec { bytes: Some(49_999), ..pull_spec(&content, vec![source()]) };
    let fault = failure_text(directory.pull(&smaller, &server.options()).await.unwrap_err());
    assert!(fault.contains("has 50000 bytes and should have 49999"), "{fault}");
    server.add_header(&format!("X-Linked-Etag: \"{}\"", checksum_of(b"another")));
    let fault = failure_text(
        directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err(),
    );
    assert!(fault.contains("the hub's file has the sha256"), "{fault}");
    server.add_header("X-Linked-Size: 1");
    let fault = failure_text(
        directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err(),
    );
    assert!(fault.contains("disagree about the size"), "{fault}");
    let spec = PullSpec { checksum: None, bytes: None, ..pull_spec(&content, vec![source()]) };
    server.add_header("X: y");
    let options = PullOptions { file_bytes_max: 40_000, ..server.options() };
    let fault = failure_text(directory.pull(&spec, &options).await.unwrap_err());
    assert!(fault.contains("it may have 1 to 40000"), "{fault}");
    assert!(directory.names().is_empty());
}

#[tokio::test]
async fn checksum_mismatch_removes_the_download() {
    let (content, other) = (weights(50_000), [&b"GGUF"[..], &vec![1; 49_996]].concat());
    let server = FileServer::start(&other, &[]);
    let directory = TestDirectory::new();
    let fault = failure_text(
        directory.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err(),
    );
    assert!(fault.contains("should be") && fault.contains("was removed"), "{fault}");
    assert!(directory.names().is_empty());
    // The spec has no checksum, but the hub reports one.
    server.add_header(&format!("X-Linked-Etag: \"{}\"", checksum_of(&content)));
    let spec = PullSpec { checksum: None, bytes: None, ..pull_spec(&content, vec![source()]) };
    let fault = failure_text(directory.pull(&spec, &server.options()).await.unwrap_err());
    assert!(fault.contains("should be") && directory.names().is_empty(), "{fault}");
}

#[tokio::test]
async fn missing_hub_address_names_the_variable() {
    let directory = TestDirectory::new();
    let fault = failure_text(
        directory.pull(&pull_spec(b"GGUF", vec![source()]), &PullOptions::default()).await.unwrap_err(),
    );
    assert!(fault.contains("set HF_ENDPOINT"), "{fault}");
}

#[tokio::test]
async fn cancelled_download_resumes_later() {
    let content = weights(400_000);
    let server = FileServer::start(&content, &[Reply::Stall(150_000)]);
    let directory = TestDirectory::new();
    let options = server.options();
    let cancel = options.cancel.clone();
    let spec = pull_spec(&content, vec![source()]);
    let mut report = |progress: crate::PullProgress| {
        if progress.done_bytes == 150_000 {
            cancel.cancel();
        }
    };
    let result = directory.models.pull(&spec, &options, &mut report).await;
    assert!(matches!(result.unwrap_err(), WeightsFault::Cancelled(_)));
    let pulled = directory.pull(&spec, &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(server.ranges(), ["", "bytes=150000-"]);
}
