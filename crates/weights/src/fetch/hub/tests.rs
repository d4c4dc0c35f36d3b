//! Downloads from a server that misbehaves.

use std::time::Duration;

use crate::WeightsFault;
use crate::model_directory::PullSpec;
use crate::options::PullOptions;
use crate::progress::PullStep;
use crate::source::{DownloadSource, HubFile};
use crate::test_support::{FileServer, Reply, TestDirectory, checksum_of, header, pull_spec, weights};

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
async fn a_file_comes_whole_with_growing_progress() {
    let content = weights(300_000);
    let server = FileServer::start(&content, &[]);
    let place = TestDirectory::new();
    let (pulled, told) =
        place.pull_with_progress(&pull_spec(&content, vec![source()]), &server.options()).await;
    let pulled = pulled.unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(pulled.source, "hub:owner/repo@main:dir/test.gguf");
    assert!(server.requests()[0].starts_with("GET /owner/repo/resolve/main/dir/test.gguf HTTP/1.1"));
    assert!(told.is_sorted_by_key(|progress| progress.done_bytes));
    let last = told.last().unwrap();
    assert_eq!((last.done_bytes, last.total_bytes), (300_000, Some(300_000)));
    assert_eq!(place.names(), ["test.gguf", "test.json"]);
}

#[tokio::test]
async fn a_download_that_is_cut_goes_on_where_it_ended() {
    let content = weights(200_000);
    let server =
        FileServer::start(&content, &[Reply::Cut(1), Reply::Cut(70_000), Reply::Cut(0), Reply::Cut(50_000)]);
    let place = TestDirectory::new();
    let pulled = place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert_eq!(pulled.checksum, checksum_of(&content));
    assert_eq!(server.ranges(), ["", "bytes=1-", "bytes=70001-", "bytes=70001-", "bytes=120001-"]);
    assert!(server.requests()[1..].iter().all(|request| header(request, "if-range").unwrap() == "\"one\""));
}

#[tokio::test]
async fn every_place_of_a_cut_is_mended() {
    let content = weights(40);
    for cut in 0..content.len() {
        let server = FileServer::start(&content, &[Reply::Cut(cut)]);
        let place = TestDirectory::new();
        let pulled = place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
        assert_eq!(std::fs::read(pulled.path).unwrap(), content, "{cut}");
    }
}

#[tokio::test]
async fn a_server_that_stops_is_asked_again_and_then_given_up_but_what_came_is_kept() {
    let content = weights(90_000);
    let stalls = [Reply::Stall(30_000), Reply::Stall(0), Reply::Stall(0)];
    let server = FileServer::start(&content, &stalls);
    let place = TestDirectory::new();
    let options =
        PullOptions { idle_timeout: Duration::from_millis(150), retries_max: 2, ..server.options() };
    let fault = place.pull(&pull_spec(&content, vec![source()]), &options).await.unwrap_err();
    assert!(failure_text(fault).contains("tried 3 times"));
    assert_eq!(place.names(), ["test.part", "test.part.json"]);
    let pulled = place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(server.ranges().last().unwrap(), "bytes=30000-");
}

#[tokio::test]
async fn a_busy_server_is_waited_for_as_long_as_it_asks_within_bounds() {
    let content = weights(1_000);
    let replies =
        [Reply::Status(503, "Retry-After: 99999"), Reply::Status(429, "X: y"), Reply::Status(500, "X: y")];
    let server = FileServer::start(&content, &replies);
    let place = TestDirectory::new();
    let options = PullOptions { backoff_max: Duration::from_millis(7), ..server.options() };
    let (pulled, told) = place.pull_with_progress(&pull_spec(&content, vec![source()]), &options).await;
    assert!(pulled.is_ok());
    let waits: Vec<u64> = told
        .iter()
        .filter_map(|progress| match &progress.step {
            PullStep::Waiting { wait_ms, .. } => Some(*wait_ms),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [7, 2, 4]);
}

#[tokio::test]
async fn what_will_not_get_better_is_not_tried_again() {
    for (status, line) in [
        (404, "X: y"),
        (401, "X: y"),
        (403, "X: y"),
        (302, "X: y"),
        (302, "Location: http://example.invalid/x"),
        (418, "X: y"),
    ] {
        let server = FileServer::start(b"GGUF", &[Reply::Status(status, line)]);
        let place = TestDirectory::new();
        let fault = place.pull(&pull_spec(b"GGUF", vec![source()]), &server.options()).await.unwrap_err();
        assert_eq!(server.requests().len(), 1, "{status} {line}: {fault}");
        assert!(place.names().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let content = weights(1_000);
    let elsewhere = Reply::Status(302, "Location: /elsewhere?signature=secret");
    let server = FileServer::start(&content, std::slice::from_ref(&elsewhere));
    let place = TestDirectory::new();
    place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
    assert!(server.requests()[1].starts_with("GET /elsewhere?signature=secret "));
    let server = FileServer::start(&content, &vec![elsewhere; 20]);
    let fault = failure_text(
        TestDirectory::new().pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err(),
    );
    assert!(fault.contains("redirects more than 5 times") && !fault.contains("secret"), "{fault}");
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn a_file_that_changes_in_between_is_begun_anew() {
    let (old, new) = (weights(90_000), [&b"GGUF"[..], &vec![7; 89_996]].concat());
    let server = FileServer::start(&old, &[Reply::Cut(40_000), Reply::Cut(0)]);
    let place = TestDirectory::new();
    let given = PullSpec { checksum: None, bytes: None, ..pull_spec(&old, vec![source()]) };
    let options = PullOptions { retries_max: 0, ..server.options() };
    assert!(place.pull(&given, &options).await.is_err());
    server.replace_content(&new, "\"two\"");
    let pulled = place.pull(&given, &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), new);
}

#[tokio::test]
async fn a_server_that_knows_no_ranges_or_wrong_ones_still_gives_the_file() {
    let content = weights(90_000);
    for second in [Reply::IgnoreRange, Reply::WrongRange] {
        let server = FileServer::start(&content, &[Reply::Cut(40_000), second]);
        let place = TestDirectory::new();
        let pulled = place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap();
        assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    }
}

#[tokio::test]
async fn another_size_or_sum_is_refused_before_anything_comes() {
    let content = weights(50_000);
    let server = FileServer::start(&content, &[]);
    let place = TestDirectory::new();
    let smaller = PullSpec { bytes: Some(49_999), ..pull_spec(&content, vec![source()]) };
    let fault = failure_text(place.pull(&smaller, &server.options()).await.unwrap_err());
    assert!(fault.contains("has 50000 bytes and should have 49999"), "{fault}");
    server.add_header(&format!("X-Linked-Etag: \"{}\"", checksum_of(b"another")));
    let fault =
        failure_text(place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err());
    assert!(fault.contains("the hub's file has the sha256"), "{fault}");
    server.add_header("X-Linked-Size: 1");
    let fault =
        failure_text(place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err());
    assert!(fault.contains("disagree about the size"), "{fault}");
    let given = PullSpec { checksum: None, bytes: None, ..pull_spec(&content, vec![source()]) };
    server.add_header("X: y");
    let options = PullOptions { file_bytes_max: 40_000, ..server.options() };
    let fault = failure_text(place.pull(&given, &options).await.unwrap_err());
    assert!(fault.contains("it may have 1 to 40000"), "{fault}");
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn a_wrong_sum_removes_what_came_and_says_so() {
    let (content, other) = (weights(50_000), [&b"GGUF"[..], &vec![1; 49_996]].concat());
    let server = FileServer::start(&other, &[]);
    let place = TestDirectory::new();
    let fault =
        failure_text(place.pull(&pull_spec(&content, vec![source()]), &server.options()).await.unwrap_err());
    assert!(fault.contains("should be") && fault.contains("was removed"), "{fault}");
    assert!(place.names().is_empty());
    // Nobody pinned a sum, but the hub told one.
    server.add_header(&format!("X-Linked-Etag: \"{}\"", checksum_of(&content)));
    let given = PullSpec { checksum: None, bytes: None, ..pull_spec(&content, vec![source()]) };
    let fault = failure_text(place.pull(&given, &server.options()).await.unwrap_err());
    assert!(fault.contains("should be") && place.names().is_empty(), "{fault}");
}

#[tokio::test]
async fn without_an_address_of_the_hub_the_variable_is_named() {
    let place = TestDirectory::new();
    let fault = failure_text(
        place.pull(&pull_spec(b"GGUF", vec![source()]), &PullOptions::default()).await.unwrap_err(),
    );
    assert!(fault.contains("set HF_ENDPOINT"), "{fault}");
}

#[tokio::test]
async fn a_cancelled_download_goes_on_later() {
    let content = weights(400_000);
    let server = FileServer::start(&content, &[Reply::Stall(150_000)]);
    let place = TestDirectory::new();
    let options = server.options();
    let cancel = options.cancel.clone();
    let wanted = pull_spec(&content, vec![source()]);
    let mut tell = |progress: crate::PullProgress| {
        if progress.done_bytes == 150_000 {
            cancel.cancel();
        }
    };
    let ended = place.models.pull(&wanted, &options, &mut tell).await;
    assert!(matches!(ended.unwrap_err(), WeightsFault::Cancelled(_)));
    let pulled = place.pull(&wanted, &server.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(server.ranges(), ["", "bytes=150000-"]);
}
