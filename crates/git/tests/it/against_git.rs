//! Every operation against git's own output.

use crate::fixture::{Fixture, blame, diff, log, show, status};

/// The lines without spaces at their ends.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).collect()
}

#[track_caller]
fn assert_same(own: &str, gits: &str) {
    assert_eq!(lines(own.trim_end()), lines(gits.trim_end()), "\n{own}\n--- git:\n{gits}");
}

#[test]
fn status_is_that_of_git() {
    let fixture = Fixture::with_history();
    let clean = fixture.ask(&status()).unwrap();
    assert_eq!(clean, "## main\nnothing to commit, working tree clean");
    fixture.change_everything();
    let command = ["status", "--short", "--branch"];
    assert_same(&fixture.ask(&status()).unwrap(), &fixture.git(&command));
    for path in ["src", "new directory", "new directory/one", "a.txt", "untracked.txt"] {
        let own = fixture.ask_path(path, &status()).unwrap();
        assert_same(&own, &fixture.git(&[&command[..], &["--", path]].concat()));
    }
}

#[test]
fn status_names_the_branch_as_git_does() {
    let fixture = Fixture::new();
    let command = ["status", "--short", "--branch"];
    assert!(fixture.ask(&status()).unwrap().starts_with("## No commits yet on main\n"));
    fixture.write("a", "1");
    fixture.commit("first", 1);
    fixture.git(&["clone", "--quiet", "--bare", ".", "../remote.git"]);
    fixture.git(&["remote", "add", "origin", "../remote.git"]);
    fixture.git(&["fetch", "--quiet", "origin"]);
    fixture.git(&["branch", "--quiet", "--set-upstream-to=origin/main"]);
    let head = |fixture: &Fixture| fixture.ask(&status()).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(head(&fixture), fixture.git(&command).trim_end());
    fixture.write("a", "2");
    fixture.commit("second", 2);
    assert_eq!(head(&fixture), "## main...origin/main [ahead 1]");
    fixture.git(&["push", "--quiet", "origin", "main"]);
    fixture.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    fixture.write("a", "3");
    fixture.commit("third", 3);
    assert_eq!(head(&fixture), fixture.git(&command).trim_end());
    assert_eq!(head(&fixture), "## main...origin/main [ahead 1, behind 1]");
    fixture.git(&["checkout", "--quiet", "--detach"]);
    assert_eq!(head(&fixture), fixture.git(&command).trim_end());
}

#[test]
fn conflicts_are_those_of_git() {
    let fixture = Fixture::new();
    for name in ["both", "ours-deleted", "theirs-deleted"] {
        fixture.write(name, "base\n");
    }
    fixture.commit("base", 1);
    fixture.git(&["checkout", "--quiet", "-b", "theirs"]);
    fixture.write("both", "theirs\n");
    fixture.write("ours-deleted", "theirs\n");
    std::fs::remove_file(fixture.path("theirs-deleted")).unwrap();
    fixture.write("both-added", "theirs\n");
    fixture.commit("theirs", 2);
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.write("both", "ours\n");
    fixture.write("theirs-deleted", "ours\n");
    std::fs::remove_file(fixture.path("ours-deleted")).unwrap();
    fixture.write("both-added", "ours\n");
    fixture.commit("ours", 3);
    // It fails because of the conflicts.
    let merge = std::panic::catch_unwind(|| fixture.git(&["merge", "--quiet", "theirs"]));
    assert!(merge.is_err());
    let own = fixture.ask(&status()).unwrap();
    let own = own.strip_suffix("\n[in progress: merge]").unwrap();
    assert_same(own, &fixture.git(&["status", "--short", "--branch"]));
    let patch = fixture.ask_path("both", &diff(None, None, false)).unwrap();
    assert_same(&patch, &fixture.git(&["diff", "--ours", "--", "both"]));
}

const DIFF: [&str; 4] = ["diff", "--no-color", "--no-ext-diff", "--no-textconv"];

#[test]
fn diff_of_working_tree_and_index_is_that_of_git() {
    let fixture = Fixture::with_history();
    assert_eq!(fixture.ask(&diff(None, None, false)).unwrap(), "no changes");
    fixture.change_everything();
    let cases: [(Option<&str>, bool, &[&str]); 5] = [
        (None, false, &[]),
        (None, true, &["--cached"]),
        (Some("HEAD"), false, &["HEAD"]),
        (Some("HEAD~2"), false, &["HEAD~2"]),
        (Some("HEAD~2"), true, &["--cached", "HEAD~2"]),
    ];
    for (from, staged, arguments) in cases {
        let own = fixture.ask(&diff(from, None, staged)).unwrap();
        assert_same(&own, &fixture.git(&[&DIFF[..], arguments].concat()));
    }
    for path in ["src", "a.txt", "auto.txt", "with space.txt", "empty"] {
        let own = fixture.ask_path(path, &diff(None, None, false)).unwrap();
        assert_same(&own, &fixture.git(&[&DIFF[..], &["--", path]].concat()));
    }
}

#[test]
fn diff_of_commits_is_that_of_git() {
    let fixture = Fixture::with_history();
    for (from, to) in [("HEAD~3", "HEAD"), ("HEAD", "HEAD~3"), ("side", "main"), ("main^2", "main~2")] {
        let own = fixture.ask(&diff(Some(from), Some(to), false)).unwrap();
        assert_same(&own, &fixture.git(&[&DIFF[..], &[from, to]].concat()));
    }
}

#[test]
fn diff_is_a_patch_that_git_applies() {
    let fixture = Fixture::with_history();
    let mut text = String::new();
    for round in 0..12_u32 {
        // Lines that repeat, so that a diff has several solutions.
        let line = |number: u32| format!("{}\n", (number * (round + 3) + number / 7) % (5 + round));
        let content: String = (0..60 + round).map(line).collect();
        fixture.write("random.txt", &content);
        if round > 0 {
            let patch = fixture.ask(&diff(None, None, false)).unwrap();
            let file = fixture.base.join("patch");
            std::fs::write(&file, patch + "\n").unwrap();
            fixture.git(&["apply", "--cached", file.to_str().unwrap()]);
            assert_eq!(fixture.git(&["show", ":random.txt"]), content, "round {round}");
            assert_ne!(text, content);
        }
        text = content;
        fixture.commit("round", 6);
    }
}

#[test]
fn log_is_that_of_git() {
    let fixture = Fixture::with_history();
    assert_same(&fixture.ask(&log(None, 100, 0)).unwrap(), &fixture.git(&["log"]));
    assert_same(&fixture.ask(&log(Some("side"), 100, 0)).unwrap(), &fixture.git(&["log", "side"]));
    for path in ["a.txt", "src", "src/main.rs", "side.txt", "gone.txt", "with space.txt"] {
        let own = fixture.ask_path(path, &log(None, 100, 0)).unwrap();
        assert_same(&own, &fixture.git(&["log", "--", path]));
    }
    let own = fixture.ask(&log(None, 2, 1)).unwrap();
    let (own, note) = own.rsplit_once("\n\n").unwrap();
    assert_same(own, &fixture.git(&["log", "--skip=1", "--max-count=2"]));
    assert_eq!(note, "[commits 2 to 3; continue with offset 3]");
}

#[test]
fn log_of_a_shallow_clone_ends_where_git_ends() {
    let fixture = Fixture::with_history();
    let origin = format!("file://{}", fixture.worktree.display());
    fixture.git(&["clone", "--quiet", "--depth=2", &origin, "../shallow"]);
    let shallow = fixture.base.join("shallow");
    let own = fixture.ask_in(&shallow, &[&shallow], "", &log(None, 100, 0)).unwrap();
    assert_same(&own, &crate::fixture::run_git(&shallow, 0, &["log"]));
}

#[test]
fn show_is_that_of_git() {
    let fixture = Fixture::with_history();
    for rev in ["HEAD~1", "HEAD~2", "HEAD~3", "side", "HEAD~4"] {
        assert_same(&fixture.ask(&show(rev)).unwrap(), &fixture.git(&["show", "--no-color", rev]));
    }
    let merge = fixture.ask(&show("HEAD")).unwrap();
    let merge = merge.replace("[a merge: compared with its first parent]\n", "");
    assert_same(&merge, &fixture.git(&["show", "--first-parent", "HEAD"]));
    for path in ["a.txt", "src", "crlf.txt", "no-newline"] {
        let own = fixture.ask_path(path, &show("HEAD~3")).unwrap();
        assert_same(&own, &fixture.git(&["show", &format!("HEAD~3:{path}")]));
    }
}

#[test]
fn blame_is_that_of_git() {
    let fixture = Fixture::with_history();
    fixture.write("a.txt", &fixture.git(&["show", "HEAD:a.txt"]).replace("line 30\n", "line thirty\n"));
    fixture.commit("sixth", 6);
    for path in ["a.txt", "src/main.rs", "src/renamed.txt", "with space.txt", "no-newline", "crlf.txt"] {
        let own = fixture.ask_path(path, &blame(Some("HEAD"), None, None)).unwrap();
        assert_same(&own, &fixture.git(&["blame", "HEAD", "--", path]));
        let own = fixture.ask_path(path, &blame(None, None, None)).unwrap();
        assert_same(&own, &fixture.git(&["blame", "--", path]));
    }
    let own = fixture.ask_path("a.txt", &blame(Some("HEAD~2"), Some(4), Some(7))).unwrap();
    assert_same(&own, &fixture.git(&["blame", "-L4,7", "HEAD~2", "--", "a.txt"]));
}

#[test]
fn blame_marks_lines_that_are_not_committed() {
    let fixture = Fixture::with_history();
    let content = fixture.git(&["show", "HEAD:a.txt"]);
    fixture.write("a.txt", &format!("new\n{content}"));
    let own = fixture.ask_path("a.txt", &blame(None, None, Some(3))).unwrap();
    let gits = fixture.git(&["blame", "-L1,3", "--", "a.txt"]);
    // The time of the first line is now.
    assert!(
        own.starts_with("00000000 (Not Committed Yet 2") && gits.starts_with("00000000 (Not Committed Yet 2")
    );
    let rest = |text: &str| lines(text).split_off(1).join("\n");
    assert_same(&rest(&own), &rest(&gits));
}
