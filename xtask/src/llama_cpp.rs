//! `cargo xtask llama-cpp`: the second engine of local models, built, held against our own and measured beside it.
//! Apart from ci, which needs neither cmake nor a C++ compiler.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::command::{self, Command, Failure};
use crate::{cargo, weights};

pub(crate) const COMMAND: Command = Command {
    name: "llama-cpp",
    summary: "builds the feature llama-cpp, holds both engines to one suite, prints their speed side by side",
    help: "usage: cargo xtask llama-cpp\n\n\
        Builds `local` with the feature llama-cpp in release mode, runs the suite that every engine has to pass on\n\
        real weights (smollm2-135m, pulled when missing), and prints what both engines do in a second.\n\n\
        The build needs a C++ compiler, cmake and libclang. Without cmake in the PATH or LIBCLANG_PATH in the\n\
        environment, both are installed by pip into a folder of their own beside the build.\n\
        To build the program itself so, set what this command prints first, then:\n\
        cargo build --release --package nexus3 --features llama-cpp",
    run,
};

const FEATURES: &str = "llama-cpp,real-model-tests";
/// One thread, so that both are measured alike on a small machine.
const THREADS: &str = "1";
const ENGINES: [&str; 2] = ["own", "llama-cpp"];

fn run(arguments: &[String]) -> Result<(), Failure> {
    command::reject_arguments(COMMAND.name, arguments)?;
    let mut variables = build_variables()?;
    for (name, value) in &variables {
        println!("export {name}={}", value.display());
    }
    let weights = match weights::test_variables() {
        Ok(weights) => weights,
        Err(_) => weights::pull().and_then(|()| weights::test_variables())?,
    };
    let model = weights.iter().find(|(name, _)| *name == "NEXUS3_TEST_MODEL").map(|(_, path)| path.clone());
    let model = model.ok_or_else(|| Failure::Failed("no weights are known for the tests".to_owned()))?;
    variables.extend(weights);
    let of_local = format!("--release --locked --package local --features {FEATURES}");
    cargo::run_with_variables(&format!("test {of_local} --lib conformance"), &variables)?;
    cargo::run_with_variables(&format!("build {of_local} --example speed"), &variables)?;
    let speed = cargo::target_folder()?.join("release/examples/speed");
    let measured = ENGINES.map(|engine| measure_engine(&speed, &model, engine));
    let [own, other] = measured;
    println!("\n{}", side_by_side(&own?, &other?));
    Ok(())
}

/// What the build of llama.cpp has to find in the environment.
#[expect(clippy::disallowed_methods, reason = "whether and where tools are is told by the environment")]
fn build_variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let include = stdout_of(Process::new("cc").arg("-print-file-name=include"))?;
    let clang_arguments = ("BINDGEN_EXTRA_CLANG_ARGS", PathBuf::from(format!("-I{}", include.trim())));
    let has_cmake = Process::new("cmake").arg("--version").output().is_ok_and(|made| made.status.success());
    if has_cmake && std::env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(vec![clang_arguments]);
    }
    let folder = cargo::target_folder()?.join("llama-cpp-tools");
    let python = folder.join("bin/python");
    if !folder.join("bin/cmake").exists() {
        println!("cmake or libclang is missing; both are installed into {}", folder.display());
        stdout_of(Process::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let install = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", "cmake", "libclang"];
        stdout_of(Process::new(&python).args(install))?;
    }
    let where_is = "import clang.cindex, os; print(os.path.join(os.path.dirname(clang.__file__), 'native'))";
    let libclang = stdout_of(Process::new(&python).args(["-c", where_is]))?;
    let path = prepend_path(&folder.join("bin"), std::env::var_os("PATH"))?;
    Ok(vec![clang_arguments, ("LIBCLANG_PATH", PathBuf::from(libclang.trim())), ("PATH", path)])
}

/// A search path that begins with `folder`.
fn prepend_path(folder: &Path, path: Option<OsString>) -> Result<PathBuf, Failure> {
    let rest = path.unwrap_or_default();
    let folders = [folder.to_path_buf()].into_iter().chain(std::env::split_paths(&rest));
    std::env::join_paths(folders)
        .map(PathBuf::from)
        .map_err(|cause| Failure::Failed(format!("{}: {cause}", folder.display())))
}

fn measure_engine(speed: &Path, model: &Path, engine: &str) -> Result<String, Failure> {
    stdout_of(Process::new(speed).arg(model).args([THREADS, engine]))
}

/// Each line that both printed, one below the other; what the model said is left out.
fn side_by_side(own: &str, other: &str) -> String {
    let told = |line: &&str| !line.contains('"');
    let pairs = own.lines().filter(told).zip(other.lines().filter(told));
    let lines = pairs.flat_map(|(own, other)| [(ENGINES[0], own), (ENGINES[1], other)]);
    lines.map(|(engine, line)| format!("{engine:<11}{line}")).collect::<Vec<_>>().join("\n")
}

/// Runs a program to its end; gives what it printed.
fn stdout_of(process: &mut Process) -> Result<String, Failure> {
    let shown = process.get_program().to_string_lossy().into_owned();
    let output = process.output().map_err(|cause| Failure::Failed(format!("`{shown}`: {cause}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("`{shown}` failed ({}): {}", output.status, why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_engines_stand_one_below_the_other() {
        let own = "load  10 ms\nfirst turn: \"words\"\nanswer 4 tok/s\n";
        let other = "load  20 ms\nfirst turn: \"other\"\nanswer 8 tok/s\n";
        let table = "own        load  10 ms\nllama-cpp  load  20 ms\nown        answer 4 tok/s\nllama-cpp  answer 8 tok/s";
        assert_eq!(side_by_side(own, other), table);
    }

    #[test]
    fn the_installed_tools_are_found_first() {
        let path = prepend_path(Path::new("/tools/bin"), Some("/usr/bin:/bin".into()));
        assert!(path.is_ok_and(|path| path == Path::new("/tools/bin:/usr/bin:/bin")));
    }
}
