//! `nexus3 models use`: the usual model, written into config.toml. The rest of the file stays as its owner wrote it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use toml_edit::{DocumentMut, Item};
use weights::{ModelDirectory, ModelId, ModelKind};

use super::args::UseArgs;
use super::{LOCAL_PROVIDER, LoadConfig, build_runtime, builtin_catalog, models_directory, weights_failure};
use crate::config::Config;
use crate::home::{self, Environment, environment_variable};
use crate::model_registry;
use crate::{Failure, print_stdout};

pub(super) fn run(
    args: &UseArgs,
    home: &Path,
    environment: &Environment,
    load: LoadConfig<'_>,
) -> Result<u8, Failure> {
    let name = resolve_name(&args.name, home, load)?;
    // Also finds out what else is wrong with the file: it is not written over a mistake.
    let config = load(&[("model", name.clone())])?;
    match name.strip_prefix("local/") {
        Some(id) => check_local_model(id, home)?,
        // The daemon would refuse it at its start for the same reason.
        None => drop(model_registry::open_registry(home, &config, environment)?),
    }
    home::prepare(home)?;
    let file = home.join("config.toml");
    write_config(&file, &name)?;
    let mut told = format!("model = \"{name}\" in {}\n", file.display());
    if environment_variable(environment, "NEXUS3_MODEL")?.is_some() {
        told += "NEXUS3_MODEL in the environment wins over it.\n";
    }
    told += &activation_hint(&config)?;
    print_stdout(&told)
}

/// Models may be named as in config.toml, and weights without the provider.
fn resolve_name(name: &str, home: &Path, load: LoadConfig<'_>) -> Result<String, Failure> {
    if name.contains('/') || load(&[])?.model_settings().contains_key(name) {
        return Ok(name.to_owned());
    }
    let known = builtin_catalog()?.find(name).is_some();
    let here = name
        .parse::<ModelId>()
        .is_ok_and(|id| ModelDirectory::at(&models_directory(home)).entry(&id).is_some());
    if known || here {
        return Ok(format!("{LOCAL_PROVIDER}/{name}"));
    }
    let text = format!(
        "{name:?} is no model: it must be PROVIDER/NAME, one of [models] in config.toml, or weights of nexus3 models list"
    );
    Err(Failure::Usage(text))
}

fn check_local_model(id: &str, home: &Path) -> Result<(), Failure> {
    let parsed: ModelId = id.parse().map_err(weights_failure)?;
    match ModelDirectory::at(&models_directory(home)).find(&parsed) {
        Some(pulled) if pulled.kind == ModelKind::Chat => Ok(()),
        Some(_) => {
            Err(Failure::Usage(format!("{LOCAL_PROVIDER}/{id} is an embedder: it answers no messages")))
        }
        None if builtin_catalog()?.find(id).is_some() => {
            Err(Failure::Usage(format!("{LOCAL_PROVIDER}/{id} is not here: nexus3 models pull {id}")))
        }
        None => Err(Failure::Usage(format!(
            "{LOCAL_PROVIDER}/{id} is not here, and the catalog has no such model: nexus3 models list shows what there is"
        ))),
    }
}

/// A daemon reads its configuration once.
fn activation_hint(config: &Config) -> Result<String, Failure> {
    let endpoint = Endpoint::new(&config.host, config.port);
    let found = build_runtime()?.block_on(detect_server(&endpoint, DETECT_TIMEOUT));
    Ok(match found {
        Detection::NexusServer => format!(
            "The daemon on port {} keeps the model it has: restart it (nexus3 rpc shutdown, nexus3 serve).\n",
            config.port
        ),
        _ => "The daemon takes it at its next start.\n".to_owned(),
    })
}

/// Whole or not at all, with the rights it had. A link stays a link.
fn write_config(file: &Path, name: &str) -> Result<(), Failure> {
    let cannot =
        |fault: &dyn std::fmt::Display| Failure::Run(format!("cannot write {}: {fault}", file.display()));
    let place = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let (text, mode) = match fs::metadata(&place) {
        Ok(metadata) => {
            let text = fs::read_to_string(&place).map_err(|fault| cannot(&fault))?;
            (text, metadata.permissions().mode() & 0o777)
        }
        Err(_) => (String::new(), 0o600),
    };
    let changed = set_model(&text, name).map_err(|fault| cannot(&fault))?;
    let fresh = PathBuf::from(format!("{}.new", place.display()));
    let written = (|| {
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
        out.write_all(changed.as_bytes())?;
        out.sync_all()?;
        fs::rename(&fresh, &place)
    })();
    written.map_err(|fault: std::io::Error| cannot(&fault))
}

fn set_model(text: &str, name: &str) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    match document.get_mut("model") {
        Some(Item::Value(value)) => {
            // What stands around the value, such as a comment behind it, stays.
            let around = value.decor().clone();
            *value = name.into();
            *value.decor_mut() = around;
        }
        _ => document["model"] = toml_edit::value(name),
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_model_changes() {
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
    fn a_link_stays_a_link_and_rights_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.toml"), folder.path().join("config.toml"));
        fs::write(&real, "port = 1\n").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write_config(&link, "local/x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "port = 1\nmodel = \"local/x\"\n");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
