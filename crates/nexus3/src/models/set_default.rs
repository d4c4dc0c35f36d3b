//! `nexus3 models use`: sets the default model in config.toml and leaves the rest of the file unchanged.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use toml_edit::{DocumentMut, Item};
use weights::{ModelDirectory, ModelId, ModelKind};

use super::args::UseArgs;
use super::{LOCAL_PROVIDER, LoadConfig, build_runtime, builtin_catalog, models_directory, weights_failure};
use crate::config::{Config, RoomOptions};
use crate::home::{self, Environment, environment_variable};
use crate::local_engine;
use crate::model_registry;
use crate::{Failure, print_stdout};

pub(super) fn run(
    args: &UseArgs,
    home: &Path,
    environment: &Environment,
    load: LoadConfig<'_>,
) -> Result<u8, Failure> {
    let name = resolve_name(&args.name, home, load)?;
    // Reports all problems of the file, so that an invalid file is not modified.
    let config = load(&[("model", name.clone())])?;
    match name.strip_prefix("local/") {
        Some(id) => check_local_model(id, home)?,
        // The same check as at the daemon's start.
        None => drop(model_registry::open_registry(home, &config, environment, Arc::default())?),
    }
    home::prepare(home)?;
    let file = home.join("config.toml");
    write_config(&file, &name)?;
    let mut text = format!("Set model = \"{name}\" in {}\n", file.display());
    if environment_variable(environment, "NEXUS3_MODEL")?.is_some() {
        text += "NEXUS3_MODEL in the environment overrides it.\n";
    }
    text += &activation_hint(&config)?;
    print_stdout(&text)
}

/// Completes the name: aliases of config.toml stay, and ids of local models get their provider.
fn resolve_name(name: &str, home: &Path, load: LoadConfig<'_>) -> Result<String, Failure> {
    if name.contains('/') || load(&[])?.model_settings().contains_key(name) {
        return Ok(name.to_owned());
    }
    let in_catalog = builtin_catalog()?.find(name).is_some();
    let is_downloaded = name
        .parse::<ModelId>()
        .is_ok_and(|id| ModelDirectory::at(&models_directory(home)).entry(&id).is_some());
    if in_catalog || is_downloaded {
        return Ok(format!("{LOCAL_PROVIDER}/{name}"));
    }
    let text = format!(
        "unknown model {name:?}: use PROVIDER/NAME, an alias in [models] of config.toml, or a model of nexus3 models \
         list"
    );
    Err(Failure::Usage(text))
}

fn check_local_model(id: &str, home: &Path) -> Result<(), Failure> {
    local_engine::require()?;
    let parsed: ModelId = id.parse().map_err(weights_failure)?;
    match ModelDirectory::at(&models_directory(home)).find(&parsed) {
        Some(model) if model.kind == ModelKind::Chat => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "cannot use {LOCAL_PROVIDER}/{id}: it is an embedding model; choose a chat model"
        ))),
        None if builtin_catalog()?.find(id).is_some() => Err(Failure::Usage(format!(
            "{LOCAL_PROVIDER}/{id} is not downloaded: run nexus3 models pull {id}"
        ))),
        None => Err(Failure::Usage(format!(
            "{LOCAL_PROVIDER}/{id} is neither downloaded nor in the catalog: run nexus3 models list to see all models"
        ))),
    }
}

/// Explains when the change takes effect: a daemon reads its configuration only at start-up.
fn activation_hint(config: &Config) -> Result<String, Failure> {
    let RoomOptions { host, port, .. } = config.room_options();
    let endpoint = Endpoint::new(host, port);
    let detection = build_runtime()?.block_on(detect_server(&endpoint, DETECT_TIMEOUT));
    Ok(match detection {
        Detection::NexusServer => format!(
            "The daemon on port {port} still uses its current model: restart it (nexus3 rpc shutdown, nexus3 serve).\n"
        ),
        _ => "The daemon uses it from its next start.\n".to_owned(),
    })
}

/// Writes the file atomically with its previous mode. A symbolic link stays: its target is replaced.
fn write_config(file: &Path, name: &str) -> Result<(), Failure> {
    let failure =
        |fault: &dyn std::fmt::Display| Failure::Run(format!("cannot write {}: {fault}", file.display()));
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let (text, mode) = match fs::metadata(&target) {
        Ok(metadata) => {
            let text = fs::read_to_string(&target).map_err(|fault| failure(&fault))?;
            (text, metadata.permissions().mode() & 0o777)
        }
        Err(_) => (String::new(), 0o600),
    };
    let changed = set_model(&text, name).map_err(|fault| failure(&fault))?;
    let temporary = PathBuf::from(format!("{}.new", target.display()));
    let written = (|| {
        let mut out =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        out.write_all(changed.as_bytes())?;
        out.sync_all()?;
        fs::rename(&temporary, &target)
    })();
    written.map_err(|fault: std::io::Error| failure(&fault))
}

fn set_model(text: &str, name: &str) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    match document.get_mut("model") {
        Some(Item::Value(value)) => {
            // Keep whitespace and comments around the value.
            let decor = value.decor().clone();
            *value = name.into();
            *value.decor_mut() = decor;
        }
        _ => document["model"] = toml_edit::value(name),
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_model_changes_nothing_else() {
        for (before, after) in [
            ("", "model = \"local/x\"\n"),
            ("model = 'a/b' # mine\nport = 1\n", "model = \"local/x\" # mine\nport = 1\n"),
            (
                "# top\nport = 1 # one\n\n[log]\nlevel = \"info\"\n",
                "# top\nport = 1 # one\nmodel = \"local/x\"\n\n[log]\nlevel = \"info\"\n",
            ),
            ("[log]\nlevel = \"info\"\n", "model = \"local/x\"\n[log]\nlevel = \"info\"\n"),
        ] {
            assert_eq!(set_model(before, "local/x").unwrap(), after);
        }
        assert!(set_model("port = ", "local/x").is_err());
    }

    #[test]
    fn writing_keeps_a_link_and_the_file_mode() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target.toml"), directory.path().join("config.toml"));
        fs::write(&target, "port = 1\n").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_config(&link, "local/x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "port = 1\nmodel = \"local/x\"\n");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
