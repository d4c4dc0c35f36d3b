//! Path normalization and directory sets.

use super::*;

#[test]
fn resolve_normalizes_paths() {
    let cases = [
        ("/", "/"),
        ("//", "/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/a/", "/a"),
        ("/a//b/", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/b/../../..", "/"),
        ("/a/..b", "/a/..b"),
        ("/a/...", "/a/..."),
        (".", "/base/dir"),
        ("..", "/base"),
        ("x", "/base/dir/x"),
        ("./x/", "/base/dir/x"),
        ("../x", "/base/x"),
        ("../../../x", "/x"),
        ("a b/ä", "/base/dir/a b/ä"),
        ("~/x", "/base/dir/~/x"),
        ("\\..\\x", "/base/dir/\\..\\x"),
    ];
    for (text, expected) in cases {
        let resolved = FilePath::resolve(text, &path("/base/dir")).unwrap();
        assert_eq!(resolved.as_str(), expected, "{text}");
        assert_eq!(path(resolved.as_str()), resolved, "{text} is stable");
    }
}

#[test]
fn resolve_rejects_invalid_paths() {
    let base = FilePath::root();
    let long = format!("/{}", "a".repeat(4096));
    let cases = [
        ("", PathFault::Empty),
        ("/a\0b", PathFault::Nul),
        ("\0", PathFault::Nul),
        (&long, PathFault::TooLong),
    ];
    for (text, fault) in cases {
        assert_eq!(FilePath::resolve(text, &base), Err(fault));
    }
    let longest = format!("/{}", "a".repeat(4095));
    assert_eq!(path(&longest).as_str(), longest);
    assert!(FilePath::resolve("b", &path(&longest)).is_err(), "the base counts too");
}

#[test]
fn directory_contains_itself_and_its_contents() {
    let cases = [
        ("/", "/", Some("")),
        ("/", "/a/b", Some("a/b")),
        ("/a", "/", None),
        ("/a", "/a", Some("")),
        ("/a", "/a/", Some("")),
        ("/a", "/a/b/c", Some("b/c")),
        ("/a/b", "/a/bc", None),
        ("/a/b", "/a/b.c", None),
        ("/a/b", "/a/b c", None),
        ("/a/b", "/a", None),
        ("/a/bc", "/a/b", None),
        ("/a", "/a/../b", None),
        ("/a", "/b/../a/c", Some("c")),
        ("/a", "/A/b", None),
    ];
    for (directory, file, relative) in cases {
        let file = path(file);
        assert_eq!(path(directory).relative_path(&file), relative, "{file} in {directory}");
        assert_eq!(path(directory).contains(&file), relative.is_some(), "{file} in {directory}");
    }
}

#[test]
fn directory_set_omits_nested_directories() {
    let cases: [(&[&str], &str); 7] = [
        (&[], "nowhere"),
        (&["/"], "anywhere"),
        (&["/a", "/", "/b"], "anywhere"),
        (&["/b", "/a"], "/a, /b"),
        (&["/a/b", "/a", "/a/b/c", "/a"], "/a"),
        (&["/a/b", "/a/bc", "/a/b/c"], "/a/b, /a/bc"),
        (&["/ab", "/a"], "/a, /ab"),
    ];
    for (texts, text) in cases {
        assert_eq!(directories(texts).to_string(), text, "{texts:?}");
        assert_eq!(directories(texts).is_empty(), text == "nowhere");
    }
}

#[test]
fn directory_sets_intersect_exactly() {
    let cases: [(&[&str], &[&str], &[&str]); 8] = [
        (&["/"], &["/a"], &["/a"]),
        (&["/a"], &["/a/b"], &["/a/b"]),
        (&["/a"], &["/b"], &[]),
        (&["/a/b"], &["/a/bc"], &[]),
        (&["/a", "/b"], &["/b/x", "/c", "/a"], &["/a", "/b/x"]),
        (&["/a"], &["/a/x", "/a/y"], &["/a/x", "/a/y"]),
        (&["/a/x/1", "/a/y"], &["/a/x", "/a/y/2"], &["/a/x/1", "/a/y/2"]),
        (&[], &["/"], &[]),
    ];
    for (a, b, common) in cases {
        let (a, b, common) = (directories(a), directories(b), directories(common));
        assert_eq!(a.intersection(&b), common, "{a} and {b}");
        assert_eq!(b.intersection(&a), common, "{b} and {a}");
        assert!(common.is_within(&a) && common.is_within(&b));
        assert_eq!(a.is_within(&b), common == a, "{a} within {b}");
        assert_eq!(b.is_within(&a), common == b, "{b} within {a}");
    }
}

#[test]
fn path_is_found_beneath_the_permitting_directory() {
    let set = directories(&["/a", "/a/b", "/c d"]);
    let cases = [
        ("/a", Some(("/a", ""))),
        ("/a/b/x", Some(("/a", "b/x"))),
        ("/c d/x", Some(("/c d", "x"))),
        ("/c", None),
        ("/ab", None),
        ("/", None),
    ];
    for (file, expected) in cases {
        let expected =
            expected.map(|(root, relative)| RootedPath { root: path(root), relative: relative.to_owned() });
        assert_eq!(set.find(&path(file)), expected, "{file}");
    }
    let all = DirectorySet::all().find(&path("/x/y"));
    assert_eq!(all, Some(RootedPath { root: FilePath::root(), relative: "x/y".to_owned() }));
}
