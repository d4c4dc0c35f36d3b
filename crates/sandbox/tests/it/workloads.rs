//! Programs that agents run work in both tiers: version control, compilers, interpreters, tools for files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox::{CommandExit, Launch, Launcher, SystemDirectories, Tier};

use crate::fixture::{Finished, Fixture, TIERS, helper};

const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn is_installed(program: &str) -> bool {
    SEARCH_PATH.split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// Runs a line in a shell, with a home and a directory for temporary files inside.
async fn run_line(fixture: &Fixture, line: &str) -> Finished {
    let directory = |name: &str| {
        let path = fixture.inside.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut launch: Launch = fixture.launch("bash", &["-c", line]);
    launch.environment = vec![
        ("PATH".to_owned(), SEARCH_PATH.to_owned()),
        ("HOME".to_owned(), directory("home")),
        ("TMPDIR".to_owned(), directory("temporary")),
        ("LC_ALL".to_owned(), "C".to_owned()),
    ];
    fixture.run(launch).await
}

/// Checks what a line prints in a tier. Skips it if the program is not installed.
async fn check(tier: Tier, program: &str, line: &str, expected: &str) {
    if !is_installed(program) {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let finished = run_line(&Fixture::new(tier), line).await;
    assert_eq!(
        (finished.stdout.as_str(), &finished.exit),
        (expected, &CommandExit::Exited(0)),
        "{finished:?}"
    );
}

async fn check_both(program: &str, line: &str, expected: &str) {
    for tier in TIERS {
        check(tier, program, line, expected).await;
    }
}

#[tokio::test]
async fn git_commits_clones_and_adds_worktrees() {
    let line = "git init -q -b main r && cd r && git config user.email a@example.org && git config user.name a \
        && echo x > f && git add f && git commit -q -m first && git clone -q . ../c && git worktree add -q ../w \
        && git log --format=%s && git -C ../c status --short && ls ../w";
    check_both("git", line, "first\nf\n").await;
}

#[tokio::test]
async fn cargo_runs_with_its_toolchain_readable() {
    let cargo = PathBuf::from(env!("CARGO"));
    let toolchain = cargo.parent().and_then(Path::parent).unwrap().to_owned();
    if !cargo.exists() {
        eprintln!("skipped: this user cannot read the toolchain");
        return;
    }
    for tier in TIERS {
        let mut fixture = Fixture::new(tier);
        let system = SystemDirectories::new(SEARCH_PATH, std::slice::from_ref(&toolchain));
        fixture.launcher = Launcher::new(helper(), tier, Arc::new(system));
        let rustc = toolchain.join("bin/rustc");
        let line = format!(
            "{} --version | cut -d ' ' -f 1; echo 'fn main() {{ println!(\"built\"); }}' > m.rs && {} m.rs && ./m",
            cargo.display(),
            rustc.display()
        );
        let finished = run_line(&fixture, &line).await;
        assert_eq!(finished.stdout, "cargo\nbuilt\n", "{finished:?}");
    }
}

#[tokio::test]
async fn python_starts_processes() {
    let processes = "import multiprocessing as m\n\
        a, b = m.Pipe()\np = m.Process(target=lambda: b.send(6 * 7))\np.start()\nprint(a.recv())\np.join()";
    check_both("python3", &format!("python3 -c '{processes}'"), "42\n").await;
    let pool = "import multiprocessing as m\nprint(m.Pool(2).map(abs, [-1, -2]))";
    // Its semaphores are in /dev/shm, which is private in namespaces only.
    check(Tier::Namespaces, "python3", &format!("python3 -c '{pool}'"), "[1, 2]\n").await;
}

#[tokio::test]
async fn node_runs_scripts_workers_and_children() {
    let script = "const { Worker } = require(\"worker_threads\"); const { execSync } = require(\"child_process\"); \
        new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(7)\", { eval: true }) \
        .on(\"message\", m => console.log(m, execSync(\"echo child\").toString().trim()))";
    check_both("node", &format!("node -e '{script}'"), "7 child\n").await;
}

#[tokio::test]
async fn compiler_and_make_build_and_run_programs() {
    let source = "#include <stdio.h>\\nint main(void) { puts(\"compiled\"); return 0; }\\n";
    check_both("gcc", &format!("printf '{source}' > m.c && gcc -o m m.c && ./m"), "compiled\n").await;
    let rules = "all: a b\\na b:\\n\\t@echo $@ > $@\\n";
    check_both("make", &format!("printf '{rules}' > Makefile && make -s -j2 && cat a b"), "a\nb\n").await;
}

#[tokio::test]
async fn tools_for_files_work() {
    let archive = "mkdir d && echo x > d/f && tar czf d.tar.gz d && rm -r d && tar xzf d.tar.gz && cat d/f";
    check_both("tar", archive, "x\n").await;
    let document =
        "{ echo 'cat <<E'; head -c 100000 /dev/zero | tr '\\0' x; echo; echo E; } > doc && bash doc | wc -c";
    check_both("bash", document, "100001\n").await;
    let sorted = "seq 300000 -1 1 | sort -n -S 1M | tail -1";
    check_both("sort", sorted, "300000\n").await;
    check_both("mktemp", "f=$(mktemp) && echo x > $f && cat $f && d=$(mktemp -d) && test -d $d", "x\n").await;
    check_both("ps", "ps -e > all && ps -o comm= -p $$", "ps\n").await;
    check_both("find", "mkdir -p a/b && touch a/b/c && find a -name c", "a/b/c\n").await;
    check_both("grep", "mkdir a && echo needle > a/f && grep -rh needle .", "needle\n").await;
    check_both("id", "id -u | grep -c .", "1\n").await;
    check_both("flock", "flock lock echo locked", "locked\n").await;
}
