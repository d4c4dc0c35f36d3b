//! Paths as text, and sets of folders.

use super::*;

#[test]
fn a_path_is_read_into_its_simplest_text() {
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
        let read = FilePath::resolve(text, &path("/base/dir")).unwrap();
        assert_eq!(read.as_str(), expected, "{text}");
        assert_eq!(path(read.as_str()), read, "{text} stays as it is");
    }
}

#[test]
fn what_no_file_can_be_called_is_refused() {
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
    assert!(FilePath::resolve("b", &path(&longest)).is_err(), "a base counts too");
}

#[test]
fn a_folder_holds_itself_and_what_is_in_it_part_by_part() {
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
    for (folder, file, rest) in cases {
        let file = path(file);
        assert_eq!(path(folder).relative_path(&file), rest, "{file} in {folder}");
        assert_eq!(path(folder).contains(&file), rest.is_some(), "{file} in {folder}");
    }
}

#[test]
fn a_set_keeps_no_folder_that_another_holds() {
    let cases: [(&[&str], &str); 7] = [
        (&[], "nowhere"),
        (&["/"], "anywhere"),
        (&["/a", "/", "/b"], "anywhere"),
        (&["/b", "/a"], "/a, /b"),
        (&["/a/b", "/a", "/a/b/c", "/a"], "/a"),
        (&["/a/b", "/a/bc", "/a/b/c"], "/a/b, /a/bc"),
        (&["/ab", "/a"], "/a, /ab"),
    ];
    for (texts, words) in cases {
        assert_eq!(folders(texts).to_string(), words, "{texts:?}");
        assert_eq!(folders(texts).is_empty(), words == "nowhere");
    }
}

#[test]
fn sets_of_folders_intersect_exactly() {
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
    for (one, two, both) in cases {
        let (one, two, both) = (folders(one), folders(two), folders(both));
        assert_eq!(one.intersection(&two), both, "{one} and {two}");
        assert_eq!(two.intersection(&one), both, "{two} and {one}");
        assert!(both.is_within(&one) && both.is_within(&two));
        assert_eq!(one.is_within(&two), both == one, "{one} within {two}");
        assert_eq!(two.is_within(&one), both == two, "{two} within {one}");
    }
}

#[test]
fn a_path_is_found_beneath_the_folder_that_allows_it() {
    let set = folders(&["/a", "/a/b", "/c d"]);
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
            expected.map(|(root, rest)| RootedPath { root: path(root), relative: rest.to_owned() });
        assert_eq!(set.find(&path(file)), expected, "{file}");
    }
    let all = DirectorySet::all().find(&path("/x/y"));
    assert_eq!(all, Some(RootedPath { root: FilePath::root(), relative: "x/y".to_owned() }));
}
