//! `nexus3 doctor`: checks what the daemon needs from the machine, and says what to do about what is missing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use sandbox::SelfTest;
use serde::Serialize;
use tools::SandboxReport;

use crate::cli::DoctorArgs;
use crate::commands::command_runner;
use crate::config::Config;
use crate::home::Environment;
use crate::{Failure, console_runtime, print_stdout};

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Passed,
    /// Works, but less well than it could.
    Warning,
    Failed,
}

/// Runs all checks and prints them.
pub(crate) fn run(
    args: &DoctorArgs,
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    let runtime = console_runtime()?;
    let commands = command_runner(config, environment);
    let report = runtime.block_on(commands.report());
    let rooms = config.room_options();
    let daemon = runtime.block_on(check_daemon(rooms.host, rooms.port));
    let mut checks = vec![check_home(home), daemon];
    checks.extend(check_sandbox(report));
    let text = if args.json {
        let json = serde_json::to_string_pretty(&checks).map_err(|fault| Failure::Run(fault.to_string()))?;
        format!("{json}\n")
    } else {
        checks.iter().map(render).collect()
    };
    print_stdout(&text)?;
    Ok(u8::from(checks.iter().any(|check| check.status == Status::Failed)))
}

fn render(check: &Check) -> String {
    let mark = match check.status {
        Status::Passed => "ok     ",
        Status::Warning => "warning",
        Status::Failed => "FAILED ",
    };
    format!("{mark}  {:<11} {}\n", check.name, check.detail)
}

fn check_home(home: &Path) -> Check {
    let name = "home";
    let shown = home.display();
    match std::fs::metadata(home) {
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => {
            Check { name, status: Status::Passed, detail: format!("{shown} is created at the first start") }
        }
        Err(fault) => Check { name, status: Status::Failed, detail: format!("{shown}: {fault}") },
        Ok(found) if !found.is_dir() => {
            Check { name, status: Status::Failed, detail: format!("{shown} is not a directory") }
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let detail = format!("other users can access {shown}; run: chmod 700 {shown}");
            Check { name, status: Status::Failed, detail }
        }
        Ok(_) => Check { name, status: Status::Passed, detail: shown.to_string() },
    }
}

async fn check_daemon(host: &str, port: u16) -> Check {
    let (status, detail) = match detect_server(&Endpoint::new(host, port), DETECT_TIMEOUT).await {
        Detection::NexusServer => (Status::Passed, format!("a daemon listens on port {port}")),
        Detection::NoServer => {
            (Status::Passed, format!("no daemon on port {port}; start one with: nexus3 serve"))
        }
        other => {
            let detail =
                format!("another program listens on port {port} ({}); choose another port", other.as_str());
            (Status::Warning, detail)
        }
    };
    Check { name: "daemon", status, detail }
}

fn check_sandbox(report: &SandboxReport) -> Vec<Check> {
    let tier = |test: &SelfTest| {
        let probes = test.probes.as_ref().map_or(0, Vec::len);
        let (status, detail) = match test.failure() {
            None => (Status::Passed, format!("{}: {probes} of {probes} probes passed", test.tier.name())),
            Some(why) => (Status::Warning, format!("{}: {why}", test.tier.name())),
        };
        Check { name: "sandbox", status, detail }
    };
    let mut checks: Vec<Check> = report.tests.iter().map(tier).collect();
    checks.push(match report.tier() {
        Some(tier) => Check {
            name: "commands",
            status: Status::Passed,
            detail: format!("agents' commands run in the tier {}", tier.name()),
        },
        None => Check {
            name: "commands",
            status: Status::Failed,
            detail:
                "refused: no tier of the sandbox holds; Landlock needs Linux 6.12 or later, or 6.2 with user \
                     namespaces"
                    .to_owned(),
        },
    });
    checks
}
