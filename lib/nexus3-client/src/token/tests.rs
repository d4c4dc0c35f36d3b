//! Token discovery: search order, and the error text for each rejected file.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn home_with_files(files: &[(&str, &str, u32)]) -> TempDir {
    let home = TempDir::new().unwrap();
    for (name, content, mode) in files {
        write_file(&home, name, content.as_bytes(), *mode);
    }
    home
}

fn write_file(home: &TempDir, name: &str, content: &[u8], mode: u32) {
    let path = home.path().join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn discovered(home: &TempDir, explicit: Option<&str>, endpoint: &Endpoint) -> Option<String> {
    let token = discover_token(home.path(), explicit, endpoint).unwrap()?;
    Some(token.authorization().to_str().unwrap().to_owned())
}

fn discovery_fault(home: &TempDir) -> String {
    discover_token(home.path(), None, &Endpoint::local(9000)).unwrap_err().to_string()
}

#[test]
fn port_file_wins_and_old_names_come_last() {
    let names = ["rpc-9000.token", "rpc.token", "server-9000.key", "server.key"];
    let files = names.map(|name| (name, name, 0o600));
    for first in 0..names.len() {
        let home = home_with_files(&files[first..]);
        assert_eq!(
            discovered(&home, None, &Endpoint::local(9000)),
            Some(format!("Bearer {}", names[first])),
            "of {:?}",
            &names[first..]
        );
    }
}

#[test]
fn default_port_uses_the_plain_file() {
    let home = home_with_files(&[("rpc.token", "nxk_a\n", 0o600)]);
    assert_eq!(discovered(&home, None, &Endpoint::default()), Some("Bearer nxk_a".to_owned()));
}

#[test]
fn token_has_the_path_of_its_file() {
    let home = home_with_files(&[("rpc.token", "nxk_a", 0o600)]);
    let token = discover_token(home.path(), None, &Endpoint::default()).unwrap().unwrap();
    assert_eq!(*token.source(), TokenSource::File(home.path().join("rpc.token")));
}

#[test]
fn explicit_token_wins_over_any_file() {
    let home = home_with_files(&[("rpc.token", "nxk_file", 0o644)]);
    assert_eq!(
        discovered(&home, Some(" nxk_given\n"), &Endpoint::default()),
        Some("Bearer nxk_given".to_owned())
    );
    let token = discover_token(home.path(), Some("nxk_given"), &Endpoint::default()).unwrap().unwrap();
    assert_eq!(*token.source(), TokenSource::Given);
}

#[test]
fn blank_explicit_token_counts_as_not_set() {
    let home = home_with_files(&[("rpc.token", "nxk_file", 0o600)]);
    for blank in ["", "  \n"] {
        assert_eq!(discovered(&home, Some(blank), &Endpoint::default()), Some("Bearer nxk_file".to_owned()));
    }
}

#[test]
fn missing_file_or_home_means_no_token() {
    let home = TempDir::new().unwrap();
    assert_eq!(discovered(&home, None, &Endpoint::default()), None);
    let missing = home.path().join("missing");
    assert_eq!(discover_token(&missing, None, &Endpoint::default()).unwrap(), None);
}

#[test]
fn remote_host_gets_only_an_explicit_token() {
    let home = home_with_files(&[("rpc.token", "nxk_file", 0o600)]);
    let remote = Endpoint::new("10.0.0.1", 8765);
    assert_eq!(discovered(&home, None, &remote), None);
    assert_eq!(discovered(&home, Some("nxk_given"), &remote), Some("Bearer nxk_given".to_owned()));
    for host in ["localhost", "::1"] {
        assert!(discovered(&home, None, &Endpoint::new(host, 8765)).is_some(), "{host}");
    }
}

#[test]
fn file_readable_by_others_is_rejected_with_mode_and_fix() {
    for mode in [0o640, 0o604, 0o644, 0o660, 0o610, 0o602, 0o777] {
        let home =
            home_with_files(&[("rpc-9000.token", "nxk_secret", mode), ("rpc.token", "nxk_next", 0o600)]);
        let text = discovery_fault(&home);
        let path = home.path().join("rpc-9000.token");
        assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
        assert!(text.ends_with(&format!("chmod 600 {}", path.display())), "{text}");
        assert!(!text.contains("nxk_"), "{text}");
    }
}

#[test]
fn file_readable_only_by_its_owner_is_accepted() {
    for mode in [0o600, 0o400, 0o700] {
        let home = home_with_files(&[("rpc.token", "nxk_a", mode)]);
        assert!(discovered(&home, None, &Endpoint::default()).is_some(), "{mode:o}");
    }
}

#[test]
fn symlink_is_rejected_whatever_its_target() {
    let home = home_with_files(&[("elsewhere", "nxk_secret", 0o600)]);
    symlink(home.path().join("elsewhere"), home.path().join("rpc.token")).unwrap();
    assert!(discovery_fault(&home).contains("rpc.token is a symbolic link"));
    symlink("nowhere", home.path().join("rpc-9000.token")).unwrap();
    assert!(discovery_fault(&home).contains("rpc-9000.token is a symbolic link"));
}

#[test]
fn directory_is_rejected() {
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join("rpc.token")).unwrap();
    assert!(discovery_fault(&home).contains("not a regular file"));
}

#[test]
fn invalid_file_content_is_rejected_without_showing_it() {
    let large = vec![b'x'; 4097];
    let cases: [(&[u8], &str); 5] = [
        (b"", "it is empty"),
        (b" \n\t", "it is empty"),
        (&large, "larger than 4096 bytes"),
        ("nxk_gehe\u{ef}m".as_bytes(), "visible ASCII"),
        (b"nxk_one nxk_two", "visible ASCII"),
    ];
    for (content, expected_text) in cases {
        let home = TempDir::new().unwrap();
        write_file(&home, "rpc.token", content, 0o600);
        let text = discovery_fault(&home);
        assert!(text.contains(expected_text), "{text}");
        assert!(text.contains("rpc.token"), "{text}");
        assert!(!text.contains("nxk_"), "{text}");
    }
}

#[test]
fn invalid_explicit_token_is_rejected_without_showing_it() {
    for given in ["nxk_a\r\nX-Nexus-Agent: b", "nxk_\u{e4}"] {
        let text = discover_token(Path::new("/"), Some(given), &Endpoint::default()).unwrap_err().to_string();
        assert!(text.contains("visible ASCII") && !text.contains("nxk_"), "{text}");
    }
    assert!(Token::parse("").is_err());
    assert!(Token::parse(&"x".repeat(5000)).is_err());
}

#[test]
fn token_value_is_never_shown() {
    let token = Token::parse("nxk_secret").unwrap();
    let displayed = format!("{token} {token:?} {:?}", token.authorization());
    assert!(!displayed.contains("secret"), "{displayed}");
}
