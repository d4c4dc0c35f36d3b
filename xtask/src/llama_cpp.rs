//! `cargo xtask llama-cpp`: builds the llama.cpp engine, runs the conformance suite on it, and compares its speed with
//! the native engine. Not part of ci, which needs neither cmake nor a C++ compiler.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::command::{self, Command, Failure};
use crate::{cargo, weights};

pub(crate) const COMMAND: Command = Command {
    name: "llama-cpp",
    summary: "build and test the feature llama-cpp, compare both engines' speed",
    help: "usage: cargo xtask llama-cpp\n\n\
        Build `local` with the feature llama-cpp in release mode, run the conformance\n\
        suite of engines on real weights (smollm2-135m, downloaded when missing), and\n\
        print the speed of both engines in tokens per second.\n\n\
        The build needs a C++ compiler, cmake and libclang. Without cmake in PATH or\n\
        LIBCLANG_PATH in the environment, pip installs both into a directory inside the\n\
        target directory.\n\n\
        To build nexus3 with the feature, export the variables that this command prints\n\
        first, then run: cargo build --release --package nexus3 --features llama-cpp",
    run,
};

const FEATURES: &str = "llama-cpp,real-model-tests";
/// One thread, so that both engines have the same resources on a small machine.
const THREADS: &str = "1";
/// Names of the native engine and of llama.cpp, as the example `speed` takes them.
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
    let model =
        model.ok_or_else(|| Failure::Failed("no weights are listed for NEXUS3_TEST_MODEL".to_owned()))?;
    variables.extend(weights);
    let local_options = format!("--release --locked --package local --features {FEATURES}");
    cargo::run_with_variables(&format!("test {local_options} --lib conformance"), &variables)?;
    cargo::run_with_variables(&format!("build {local_options} --example speed"), &variables)?;
    let speed = cargo::target_folder()?.join("release/examples/speed");
    let [native, llama_cpp] = ENGINES.map(|engine| measure_engine(&speed, &model, engine));
    println!("\n{}", side_by_side(&native?, &llama_cpp?));
    Ok(())
}

/// Returns the environment variables for the build of llama.cpp; installs cmake and libclang when they are missing.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment says whether and where the tools are installed"
)]
fn build_variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let include = stdout_of(Process::new("cc").arg("-print-file-name=include"))?;
    let clang_arguments = ("BINDGEN_EXTRA_CLANG_ARGS", PathBuf::from(format!("-I{}", include.trim())));
    let has_cmake =
        Process::new("cmake").arg("--version").output().is_ok_and(|output| output.status.success());
    if has_cmake && std::env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(vec![clang_arguments]);
    }
    let folder = cargo::target_folder()?.join("llama-cpp-tools");
    let python = folder.join("bin/python");
    if !folder.join("bin/cmake").exists() {
        println!("cmake or libclang is missing; installing both into {}", folder.display());
        stdout_of(Process::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let install = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", "cmake", "libclang"];
        stdout_of(Process::new(&python).args(install))?;
    }
    let print_path =
        "import clang.cindex, os; print(os.path.join(os.path.dirname(clang.__file__), 'native'))";
    let libclang = stdout_of(Process::new(&python).args(["-c", print_path]))?;
    let path = prepend_path(&folder.join("bin"), std::env::var_os("PATH"))?;
    Ok(vec![clang_arguments, ("LIBCLANG_PATH", PathBuf::from(libclang.trim())), ("PATH", path)])
}

/// Returns a search path with `folder` as its first entry.
fn prepend_path(folder: &Path, path: Option<OsString>) -> Result<PathBuf, Failure> {
    let path = path.unwrap_or_default();
    let folders = [folder.to_path_buf()].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders)
        .map(PathBuf::from)
        .map_err(|cause| Failure::Failed(format!("{}: {cause}", folder.display())))
}

fn measure_engine(speed: &Path, model: &Path, engine: &str) -> Result<String, Failure> {
    stdout_of(Process::new(speed).arg(model).args([THREADS, engine]))
}

/// Interleaves the lines of both engines for comparison; lines with the model's text, which is quoted, are left out.
fn side_by_side(native: &str, llama_cpp: &str) -> String {
    let has_figures = |line: &&str| !line.contains('"');
    let pairs = native.lines().filter(has_figures).zip(llama_cpp.lines().filter(has_figures));
    let lines = pairs.flat_map(|(native, llama_cpp)| [(ENGINES[0], native), (ENGINES[1], llama_cpp)]);
    lines.map(|(engine, line)| format!("{engine:<11}{line}")).collect::<Vec<_>>().join("\n")
}

/// Runs a program that has to succeed and returns its stdout.
fn stdout_of(process: &mut Process) -> Result<String, Failure> {
    let program = process.get_program().to_string_lossy().into_owned();
    let output = process.output().map_err(|cause| Failure::Failed(format!("`{program}`: {cause}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("`{program}` failed ({}): {}", output.status, stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_both_engines_are_interleaved() {
        let native = "load  10 ms\nfirst turn: \"words\"\nanswer 4 tok/s\n";
        let llama_cpp = "load  20 ms\nfirst turn: \"other\"\nanswer 8 tok/s\n";
        let table = "own        load  10 ms\nllama-cpp  load  20 ms\nown        answer 4 tok/s\nllama-cpp  answer 8 tok/s";
        assert_eq!(side_by_side(native, llama_cpp), table);
    }

    #[test]
    fn installed_tools_come_first_in_the_path() {
        let path = prepend_path(Path::new("/tools/bin"), Some("/usr/bin:/bin".into()));
        assert!(path.is_ok_and(|path| path == Path::new("/tools/bin:/usr/bin:/bin")));
    }
}
