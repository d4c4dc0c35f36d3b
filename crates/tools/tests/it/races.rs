//! Concurrency: several writers on one file, and a directory that is swapped for a link during access.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::ToolOutcome;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use crate::fixture::Fixture;
use crate::sandbox::{SECRET, Sandbox, append, append_file, read, write};

/// Swaps two names repeatedly until it is stopped.
struct PathSwapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl PathSwapper {
    fn start(first: String, second: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).expect("a swap");
                swaps += 1;
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("the swapping thread")
    }
}

/// A sandbox in which the directory `inside/door` is swapped with a link that leads out.
fn swapping_sandbox() -> (Sandbox, PathSwapper) {
    let sandbox = Sandbox::new();
    let (door, link) = (sandbox.path("inside/door"), sandbox.path("inside/link"));
    std::fs::create_dir(&door).expect("a directory");
    std::fs::write(sandbox.path("inside/door/secret.txt"), "harmless").expect("a file");
    symlink("../outside", &link).expect("a link");
    let swapper = PathSwapper::start(door, link);
    (sandbox, swapper)
}

#[tokio::test]
async fn threat_69_read_stays_inside_during_swaps() {
    let (sandbox, swapper) = swapping_sandbox();
    let fixture = sandbox.fixture();
    let (mut harmless, mut denied) = (0, 0);
    for round in 0..20_000 {
        let outcome = read(&fixture, "door/secret.txt").await;
        assert!(!outcome.text().contains(SECRET), "escaped in round {round}");
        match outcome {
            ToolOutcome::Done(text) if text == "harmless" => harmless += 1,
            ToolOutcome::Denied(_) => denied += 1,
            other => panic!("in round {round}: {other:?}"),
        }
    }
    let swaps = swapper.end();
    eprintln!("{swaps} swaps, {harmless} reads, {denied} denied");
}

/// Tries per tool that reads. Those that write are raced in `fs/beneath_root/races.rs`, where a try is cheap.
const TRIES: usize = 10_000;

#[tokio::test]
async fn threat_69_walks_stay_inside_during_swaps() {
    let (sandbox, swapper) = swapping_sandbox();
    let fixture = sandbox.fixture();
    for round in 0..TRIES {
        for (tool, arguments) in [
            ("fs.list", json!({"path": "door"})),
            ("fs.glob", json!({"path": "door", "pattern": "**"})),
            ("fs.search", json!({"path": "door", "pattern": "secret"})),
            ("fs.info", json!({"path": "door/sub/deep.txt"})),
        ] {
            let outcome = fixture.call(tool, &arguments).await;
            assert!(!outcome.text().contains(SECRET), "{tool} escaped in round {round}");
            let is_outside = outcome.name() == "done" && outcome.text().contains("sub");
            assert!(!is_outside, "{tool} escaped in round {round}: {outcome:?}");
        }
    }
    swapper.end();
}

fn contents() -> [String; 2] {
    ["a", "b"].map(|letter| letter.repeat(200_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threat_74_concurrent_writers_leave_one_complete_content() {
    let sandbox = Arc::new(Sandbox::new());
    let writers = contents().map(|content| {
        let fixture = Fixture::confined_to(&sandbox.path("inside"));
        tokio::spawn(async move {
            for _ in 0..50 {
                assert_eq!(write(&fixture, "shared", &content).await.name(), "done");
            }
        })
    });
    let reader = sandbox.fixture();
    write(&reader, "shared", &contents()[0]).await;
    for _ in 0..200 {
        let seen = read(&reader, "shared").await;
        assert!(
            contents().iter().any(|content| content == seen.text()),
            "partial content: {}",
            seen.text().len()
        );
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    assert!(contents().contains(&sandbox.content("inside/shared")));
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "shared", "sub"]);
}

/// Each edit replaces the number that its agent has read by the next one. If an edit were made on stale content, two
/// successful ones would count only once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threat_74_no_edit_is_made_on_stale_content() {
    let sandbox = Arc::new(Sandbox::new());
    std::fs::write(sandbox.path("inside/count"), "0.").unwrap();
    let agents = [1, 2].map(|_| {
        let fixture = Fixture::confined_to(&sandbox.path("inside"));
        tokio::spawn(async move {
            let mut done = 0_u32;
            for _ in 0..250 {
                let read = read(&fixture, "count").await.text().to_owned();
                let number: u32 = read.trim_end_matches('.').parse().unwrap();
                let edit = json!({"path": "count", "old": read, "new": format!("{}.", number + 1)});
                let outcome = fixture.call("fs.edit", &edit).await;
                let is_conflict = outcome.text().contains("was changed meanwhile")
                    || outcome.text().contains("the text to replace is not in count");
                assert!(outcome.name() == "done" || is_conflict, "{outcome:?}");
                done += u32::from(outcome.name() == "done");
            }
            done
        })
    });
    let mut done = 0;
    for agent in agents {
        done += agent.await.expect("an agent");
    }
    assert_eq!(sandbox.content("inside/count"), format!("{done}."));
    assert_eq!(sandbox.file_names("inside"), ["count", "ok.txt", "sub"]);
}

/// A name that is taken is neither written nor followed: the content goes to a new file or nowhere.
#[tokio::test]
async fn threat_74_guessed_temporary_name_is_not_followed() {
    let sandbox = Sandbox::new();
    // The test's random numbers count up.
    for number in 1..=2 {
        let name = format!("inside/.nexus3-{}-{number:032x}.tmp", std::process::id());
        symlink("../outside/secret.txt", sandbox.path(&name)).unwrap();
    }
    let fixture = sandbox.fixture();
    for _ in 0..2 {
        let outcome = write(&fixture, "ok.txt", "mine").await;
        assert!(outcome.text().contains("File exists"), "{outcome:?}");
    }
    assert_eq!(sandbox.content("inside/ok.txt"), "inside");
    assert_eq!(write(&fixture, "ok.txt", "mine").await.name(), "done");
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_appends_are_not_lost() {
    let sandbox = Arc::new(Sandbox::new());
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let fixture = Fixture::confined_to(&sandbox.path("inside"));
            tokio::spawn(async move {
                for line in 0..25 {
                    let text = format!("{writer} {line}\n");
                    let outcome = if (writer + line) % 3 == 0 {
                        append(&fixture, "log", &text).await
                    } else {
                        append_file(&fixture, "log", &text).await
                    };
                    assert_eq!(outcome.name(), "done", "{outcome:?}");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    let log = sandbox.content("inside/log");
    for writer in 0..4 {
        let own = log.lines().filter_map(|line| line.strip_prefix(&format!("{writer} ")));
        assert!(own.eq((0..25).map(|line| line.to_string())), "lines of {writer} in order");
    }
    assert_eq!(log.lines().count(), 100);
}
