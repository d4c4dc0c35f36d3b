//! What results contain and what not: closed files, odd revisions, bounded texts.

use serde_json::json;

use crate::fixture::{Fixture, blame, diff, log, show, status};

#[test]
fn closed_and_blocked_files_are_not_shown_at_any_revision() {
    let fixture = Fixture::new();
    for name in [".npmrc", "deep/.npmrc", "blocked/file", "open"] {
        fixture.write(name, "canary one\n");
    }
    fixture.commit("first", 1);
    for name in [".npmrc", "deep/.npmrc", "blocked/file"] {
        fixture.write(name, "canary two\n");
    }
    fixture.git(&["add", "deep"]);
    let mut texts = vec![
        fixture.ask(&diff(None, None, false)).unwrap(),
        fixture.ask(&diff(None, None, true)).unwrap(),
        fixture.ask(&diff(Some("HEAD"), None, false)).unwrap(),
    ];
    fixture.commit("second", 2);
    fixture.git(&["mv", "deep/.npmrc", "deep/renamed"]);
    fixture.commit("third", 3);
    texts.extend([
        fixture.ask(&show("HEAD~1")).unwrap(),
        fixture.ask(&show("HEAD")).unwrap(),
        fixture.ask(&diff(Some("HEAD~2"), Some("HEAD~1"), false)).unwrap(),
    ]);
    for text in &texts {
        assert!(!text.contains("canary") && text.contains("[not shown: "), "{text}");
    }
    for path in [".npmrc", "blocked/file"] {
        for operation in
            [show("HEAD"), show("HEAD~2"), blame(None, None, None), blame(Some("HEAD"), None, None)]
        {
            let fault = fixture.ask_path(path, &operation).unwrap_err();
            assert!(fault.contains("[not shown: "), "{operation}: {fault}");
        }
    }
    // Their names are shown, as in a listing.
    fixture.write(".npmrc", "canary three\n");
    assert!(fixture.ask(&status()).unwrap().contains(" M .npmrc"));
    assert_eq!(fixture.ask_path("open", &show("HEAD")).unwrap(), "canary one");
}

#[test]
fn threat_88_odd_revisions_are_refused_with_their_name() {
    let fixture = Fixture::with_history();
    let blob = fixture.git(&["rev-parse", "HEAD:a.txt"]).trim().to_owned();
    let tree = fixture.git(&["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    let long = "x".repeat(300);
    for (rev, why) in [
        ("", "it is empty"),
        ("-h", "it begins with `-`"),
        ("--output=/tmp/x", "it begins with `-`"),
        ("--exec=touch x", "it begins with `-`"),
        ("-", "it begins with `-`"),
        ("--", "it begins with `-`"),
        ("HEAD..main", "it is a range"),
        ("HEAD...main", "it is a range"),
        ("HEAD:a.txt", "it contains `:`"),
        (":/first", "it contains `:`"),
        (":0:a.txt", "it contains `:`"),
        ("HEAD\n--output=x", "control characters"),
        ("HEAD\0", "control characters"),
        ("no-such-branch", "no-such-branch"),
        ("HEAD~99", "HEAD~99"),
        ("HEAD^{tree}", "HEAD^{tree}"),
        ("^HEAD", "^HEAD"),
        ("../../etc/passwd", "it is a range"),
        ("refs/heads/../../../secret", "it is a range"),
        ("HEAD;touch x", "HEAD;touch x"),
        ("$(touch x)", "$(touch x)"),
        ("*", "*"),
        (&long, "it is longer than 256 bytes"),
        (&blob, "not a commit"),
        (&tree, "not a commit"),
    ] {
        for operation in [show(rev), log(Some(rev), 5, 0), diff(Some(rev), None, false)] {
            let fault = fixture.ask(&operation).unwrap_err();
            assert!(fault.starts_with("revision ") && fault.contains(why), "{rev:?}: {fault}");
        }
        assert!(fixture.ask_path("a.txt", &blame(Some(rev), None, None)).is_err(), "{rev:?}");
    }
    // A branch with such a name is one, by its full name.
    fixture.git(&["update-ref", "refs/heads/-odd", "HEAD"]);
    assert_eq!(fixture.ask(&log(Some("refs/heads/-odd"), 1, 0)), fixture.ask(&log(None, 1, 0)));
}

#[test]
fn threat_88_paths_are_literal() {
    let fixture = Fixture::new();
    for name in ["--output=x", "-v", "*", ":(exclude)a", "a"] {
        fixture.write(name, "one\n");
    }
    fixture.commit("first", 1);
    for name in ["--output=x", "-v", "*", ":(exclude)a"] {
        fixture.write(name, "two\n");
        let text = fixture.ask_path(name, &status()).unwrap();
        assert_eq!(text, format!("## main\n M {name}"));
        let patch = fixture.ask_path(name, &diff(None, None, false)).unwrap();
        assert!(patch.ends_with("-one\n+two") && patch.matches("diff --git").count() == 1, "{patch}");
        assert_eq!(fixture.ask_path(name, &show("HEAD")).unwrap(), "one");
        assert!(fixture.ask_path(name, &log(None, 5, 0)).unwrap().ends_with("    first"));
        assert!(fixture.ask_path(name, &blame(None, None, None)).unwrap().ends_with(") two"));
        fixture.write(name, "one\n");
    }
}

#[test]
fn long_results_are_cut_and_continued() {
    let fixture = Fixture::new();
    let text: String = (0..3_000).map(|line| format!("line {line}\n")).collect();
    fixture.write("long", &text);
    fixture.commit("long", 1);
    let first = fixture.ask_path("long", &show("HEAD")).unwrap();
    assert!(first.ends_with("[lines 1 to 2000 of 3000; continue with offset 2000]"));
    let rest = json!({ "show": { "rev": "HEAD", "offset": 2000 } });
    let rest = fixture.ask_path("long", &rest).unwrap();
    assert!(rest.starts_with("line 2000\n") && rest.ends_with("line 2999"));
    let blamed = fixture.ask_path("long", &blame(None, Some(2), None)).unwrap();
    assert!(blamed.ends_with("[lines 2 to 501 of 3000; continue with start_line 502]"), "{blamed}");
    assert_eq!(blamed.lines().count(), 501);
    let fault = fixture.ask_path("long", &blame(None, Some(3001), None)).unwrap_err();
    assert_eq!(fault, "start_line 3001 is beyond the end: there are 3000 lines");
    assert_eq!(fixture.ask(&log(None, 5, 1)).unwrap_err(), "offset 1 is beyond the end: there are 1 commits");
}

#[test]
fn errors_name_what_is_missing() {
    let empty = Fixture::new();
    assert!(empty.ask(&log(None, 5, 0)).unwrap_err().starts_with("revision \"HEAD\""));
    assert_eq!(empty.ask(&diff(None, None, true)).unwrap(), "no changes");
    let fixture = Fixture::with_history();
    for (path, operation, expected) in [
        ("missing", show("HEAD"), "missing is not in revision \"HEAD\""),
        ("missing", blame(Some("HEAD"), None, None), "missing is not in revision \"HEAD\""),
        (
            "missing",
            blame(None, None, None),
            "missing is not in the working tree; name a revision that has it",
        ),
        ("binary.bin", show("HEAD"), "binary.bin is a binary file of 4 bytes"),
        ("binary.bin", blame(None, None, None), "binary.bin is a binary file"),
        ("", diff(None, Some("HEAD"), false), "`to` needs `from`"),
        ("", diff(Some("HEAD"), Some("HEAD"), true), "`staged` compares with the index: leave `to` out"),
    ] {
        assert_eq!(fixture.ask_path(path, &operation), Err(expected.to_owned()));
    }
    assert_eq!(fixture.ask_path("missing", &log(None, 5, 0)).unwrap(), "no commits");
    assert!(git::answer(b"{}", |_| false).unwrap_err().starts_with("the request is invalid: missing field"));
}
