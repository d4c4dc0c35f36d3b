//! Resource abuse ends at the limits of the command, and the launching process goes on.

use sandbox::{ResourceLimits, Tier};

use crate::fixture::{Fixture, TIERS};
use crate::programs::{Programs, users};

const LIMITS: ResourceLimits = ResourceLimits {
    file_bytes_max: 1 << 20,
    memory_bytes_max: 256 << 20,
    open_files_max: 64,
    processes_max: 60,
};

/// What the hostile program prints, and how the launcher says that it ended.
fn abuse(user: u32, tier: Tier, arguments: &[&str]) -> (String, String) {
    let output = Programs::new(user).hostile_within(Some(tier), arguments, Some(LIMITS)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout).trim().to_owned(), text(output.stderr).trim().to_owned())
}

#[test]
fn threat_85_processes_without_end_are_bounded() {
    for user in users() {
        for (tier, mode) in TIERS.into_iter().flat_map(|tier| [(tier, "forks"), (tier, "threads")]) {
            let (printed, ended) = abuse(user, tier, &[mode]);
            if user == 0 {
                assert_eq!(ended, r#"exit: Stopped("it had more than 60 processes and threads")"#, "{mode}");
            } else {
                assert!(printed.ends_with("errno 11"), "{mode}: {printed} {ended}");
            }
        }
    }
}

#[test]
fn threat_85_command_that_allocates_too_much_gets_no_memory() {
    for user in users() {
        for tier in TIERS {
            let gigabyte = (1_u64 << 30).to_string();
            assert_eq!(abuse(user, tier, &["memory", &gigabyte]).0, "refused");
            // No limit of the kernel counts shared memory; when it runs out, the command is killed first.
            assert_eq!(abuse(user, tier, &["shared-memory", &gigabyte]).0, "mapped");
        }
    }
}

#[test]
fn threat_85_command_that_writes_a_long_file_is_killed() {
    for user in users() {
        for tier in TIERS {
            let (_, ended) = abuse(user, tier, &["file", "long", &(10_u64 << 30).to_string()]);
            assert_eq!(ended, "exit: Killed(25)", "SIGXFSZ");
        }
    }
}

#[tokio::test]
async fn kernel_kills_the_command_first_when_memory_runs_out() {
    for tier in TIERS {
        let finished = Fixture::new(tier).run_shell("cat /proc/self/oom_score_adj").await;
        assert_eq!(finished.stdout, "1000\n");
    }
}
