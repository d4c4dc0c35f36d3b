//! The environment and directories of the commands that agents run, from the configuration and the daemon's environment.

use std::path::{Path, PathBuf};

use sandbox::Helper;
use tools::{CommandOptions, CommandRunner};

use crate::config::Config;
use crate::home::{self, Environment};

/// The search path of commands when the daemon has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of the daemon that commands get. Any other may hold a key.
const PASSED_VARIABLES: &[&str] =
    &["LANG", "LC_ALL", "LC_CTYPE", "TZ", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "GOROOT", "VIRTUAL_ENV"];

/// Variables of the daemon that commands outside the sandbox get besides: the sandbox has a home of its own.
const UNCONFINED_VARIABLES: &[&str] = &["HOME", "USER", "LOGNAME"];

/// Variables that keep commands from waiting for a person or formatting for a terminal.
const FIXED_VARIABLES: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Rust toolchains are outside the system directories: variable, directory in the user's home, and what commands read
/// there. Not `credentials.toml`.
const TOOLCHAINS: &[(&str, &str, &[&str])] = &[
    ("CARGO_HOME", ".cargo", &["bin", "registry", "git", "config.toml"]),
    ("RUSTUP_HOME", ".rustup", &[""]),
];

/// Builds the runner of commands.
pub(crate) fn command_runner(config: &Config, environment: &Environment) -> CommandRunner {
    let rooms = config.room_options();
    let user_home = home::user_home(environment);
    let mut variables = passed_variables(environment);
    let mut readable: Vec<PathBuf> =
        rooms.command_paths.iter().map(|path| expand(path, user_home.as_deref())).collect();
    for (variable, directory, parts) in TOOLCHAINS {
        let set = variables.iter().find(|(name, _)| name == variable).map(|(_, value)| PathBuf::from(value));
        let found = set.or_else(|| Some(user_home.as_ref()?.join(directory)).filter(|path| path.is_dir()));
        let Some(root) = found else { continue };
        readable.extend(parts.iter().map(|part| root.join(part)));
        // The commands have a home of their own.
        if let Some(text) = root.to_str().filter(|_| !variables.iter().any(|(name, _)| name == variable)) {
            variables.push(((*variable).to_owned(), text.to_owned()));
        }
    }
    CommandRunner::new(CommandOptions {
        helper: Helper::own_executable(),
        environment: variables,
        unconfined_environment: variables_named(environment, UNCONFINED_VARIABLES),
        readable_directories: readable,
        temporary_directory: std::env::temp_dir(),
        limits: rooms.command_limits,
    })
}

fn variables_named(environment: &Environment, names: &[&str]) -> Vec<(String, String)> {
    let find = |name: &&str| {
        let (_, value) = environment.iter().find(|(other, _)| other == *name)?;
        value.to_str().filter(|value| !value.is_empty()).map(|value| ((*name).to_owned(), value.to_owned()))
    };
    names.iter().filter_map(find).collect()
}

fn passed_variables(environment: &Environment) -> Vec<(String, String)> {
    let path = variables_named(environment, &["PATH"]).pop().map(|(_, path)| path);
    let path = path.unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let passed = variables_named(environment, PASSED_VARIABLES);
    let fixed = FIXED_VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    [("PATH".to_owned(), path)].into_iter().chain(passed).chain(fixed).collect()
}

/// Expands `~` at the beginning of a path.
fn expand(path: &str, user_home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), user_home) {
        (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn threat_79_commands_get_no_variable_that_may_hold_a_key() {
        const PLANTED: &str = "OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY OPENROUTER_API_KEY MISTRAL_API_KEY \
            NEXUS3_API_KEY NEXUS3_TOKEN NEXUS3_HOME MY_KEY MY_TOKEN MY_SECRET MY_PASSWORD DB_PASSWORD DATABASE_URL \
            AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GH_TOKEN GITLAB_TOKEN NPM_TOKEN \
            CARGO_REGISTRY_TOKEN SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DISPLAY XAUTHORITY \
            DOCKER_HOST KUBECONFIG LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV PROMPT_COMMAND PS4 IFS SHELLOPTS \
            GIT_DIR GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_EXEC_PATH PYTHONPATH PYTHONSTARTUP \
            PYTHONHOME PERL5LIB PERL5OPT RUBYOPT NODE_OPTIONS RUSTFLAGS RUSTC_WRAPPER HOME";
        let variables: Vec<&str> = ["PATH", "LANG"].into_iter().chain(PLANTED.split_whitespace()).collect();
        assert!(variables.len() > 50);
        let environment: Vec<(OsString, OsString)> =
            variables.iter().map(|name| (OsString::from(name), OsString::from("value"))).collect();
        let passed = passed_variables(&environment);
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "LANG", "TERM", "NO_COLOR", "PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT"]);
    }
}
