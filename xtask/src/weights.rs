//! Model weights for the tests of real models: nexus3 itself downloads them once, into the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::command::Failure;

/// Catalog ids of the weights, each with the environment variable that names its file to the tests.
const WEIGHTS: &[(&str, &str)] =
    &[("smollm2-135m", "NEXUS3_TEST_MODEL"), ("minilm-l6-v2", "NEXUS3_TEST_EMBEDDER")];

/// Downloads the weights that are missing.
pub(crate) fn pull() -> Result<(), Failure> {
    cargo::run("build --locked --package nexus3 --bin nexus3")?;
    for (id, _) in WEIGHTS {
        run_nexus3(&["models", "pull", id, "--yes"])?;
    }
    Ok(())
}

/// Returns the environment variables for the tests.
pub(crate) fn test_variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let folder = home()?.join("models");
    let file = |id: &str| ["gguf", "onnx"].map(|kind| folder.join(format!("{id}.{kind}")));
    WEIGHTS
        .iter()
        .map(|(id, variable)| {
            let found = file(id).into_iter().find(|path| path.exists());
            found.map(|path| (*variable, path)).ok_or_else(|| {
                Failure::Failed(format!(
                    "weights {id} are missing: run `cargo xtask ci`, which downloads them"
                ))
            })
        })
        .collect()
}

fn run_nexus3(arguments: &[&str]) -> Result<(), Failure> {
    let program = cargo::target_folder()?.join("debug/nexus3");
    let command_line = format!("nexus3 {}", arguments.join(" "));
    let status = Command::new(&program).arg("--home").arg(home()?).args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("`{command_line}` failed ({status})"))),
        Err(cause) => Err(Failure::Failed(format!("`{}` did not start: {cause}", display_path(&program)))),
    }
}

/// The nexus3 home for the weights. It is in the target directory, because weights are large and do not change.
fn home() -> Result<PathBuf, Failure> {
    Ok(cargo::target_folder()?.join("test-weights"))
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}
