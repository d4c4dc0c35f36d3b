//! The weights that tests of real models need, pulled once by the program under test itself and kept beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::command::Failure;

/// Weights, and the variable that tells the tests where they are.
const WEIGHTS: &[(&str, &str)] =
    &[("smollm2-135m", "NEXUS3_TEST_MODEL"), ("minilm-l6-v2", "NEXUS3_TEST_EMBEDDER")];

/// Pulls what is missing.
pub(crate) fn pull() -> Result<(), Failure> {
    cargo::run("build --locked --package nexus3 --bin nexus3")?;
    for (id, _) in WEIGHTS {
        run_nexus3(&["models", "pull", id, "--yes"])?;
    }
    Ok(())
}

/// The variables for the tests.
pub(crate) fn test_variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let folder = home()?.join("models");
    let file = |id: &str| ["gguf", "onnx"].map(|kind| folder.join(format!("{id}.{kind}")));
    WEIGHTS
        .iter()
        .map(|(id, variable)| {
            let found = file(id).into_iter().find(|path| path.exists());
            found.map(|path| (*variable, path)).ok_or_else(|| {
                Failure::Failed(format!("the weights {id} are not there: run `cargo xtask ci` as a whole"))
            })
        })
        .collect()
}

fn run_nexus3(arguments: &[&str]) -> Result<(), Failure> {
    let program = cargo::target_folder()?.join("debug/nexus3");
    let shown = format!("nexus3 {}", arguments.join(" "));
    let status = Command::new(&program).arg("--home").arg(home()?).args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("`{shown}` failed ({status})"))),
        Err(cause) => Err(Failure::Failed(format!("`{}` did not start: {cause}", display_path(&program)))),
    }
}

/// A home of its own, kept with the build: weights are large and do not change.
fn home() -> Result<PathBuf, Failure> {
    Ok(cargo::target_folder()?.join("test-weights"))
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}
