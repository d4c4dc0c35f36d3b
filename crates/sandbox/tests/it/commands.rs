//! What commands can do: run, write where it is granted, print without limits, and nothing else.

use sandbox::{CommandExit, LaunchFault};

use crate::fixture::{Fixture, TIERS, finish};

#[tokio::test]
async fn command_gets_its_arguments_and_reports_its_exit() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run(fixture.launch("printf", &["%s|", "a b", "$HOME", "*"])).await;
        assert_eq!((finished.stdout.as_str(), &finished.exit), ("a b|$HOME|*|", &CommandExit::Exited(0)));
        assert_eq!(fixture.run_shell("echo why >&2; exit 7").await.exit, CommandExit::Exited(7));
        assert_eq!(fixture.run_shell("kill -SEGV $$").await.exit, CommandExit::Killed(11));
    }
}

#[tokio::test]
async fn command_writes_in_its_directory_and_reads_nothing_else() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run_shell("echo x > made && cat made && pwd").await;
        assert_eq!(finished.stdout, format!("x\n{}\n", fixture.inside.display()), "{finished:?}");
        assert_eq!(std::fs::read_to_string(fixture.inside.join("made")).unwrap(), "x\n");
        let secret = fixture.outside.join("secret");
        let finished = fixture.run(fixture.launch("cat", &[secret.to_str().unwrap()])).await;
        assert_eq!((finished.stdout.as_str(), finished.exit), ("", CommandExit::Exited(1)));
    }
}

#[tokio::test]
async fn threat_79_environment_is_the_given_one_only() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run(fixture.launch("env", &[])).await;
        assert_eq!(finished.stdout, "PATH=/usr/local/bin:/usr/bin:/bin\n");
    }
}

#[tokio::test]
async fn threat_80_command_has_three_descriptors() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        // A descriptor of this process that is not closed on exec.
        let leaked = rustix::io::dup(std::fs::File::open(&fixture.outside).unwrap()).unwrap();
        let finished = fixture.run_shell("ls /proc/$$/fd; true").await;
        assert_eq!(finished.stdout, "0\n1\n2\n", "{finished:?}");
        drop(leaked);
    }
}

/// What is retained has a fixed size, whatever the command writes; the rest is counted.
#[tokio::test]
async fn threat_89_flood_is_drained_counted_and_cut() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture
            .run_shell("head -c 200000000 /dev/zero; yes | head -n 1000000 >&2; head -c 200000000 /dev/zero")
            .await;
        assert_eq!(finished.exit, CommandExit::Exited(0));
        assert!(finished.stdout.contains("\n[… 397902848 bytes omitted …]\n"), "{}", finished.stdout.len());
        assert!(finished.stdout.len() < (2 << 20) + 100);
        assert_eq!(finished.stderr, "y\n".repeat(1_000_000));
    }
}

#[tokio::test]
async fn threat_89_bytes_that_are_no_text_are_replaced() {
    let fixture = Fixture::new(TIERS[0]);
    let finished = fixture.run_shell(r"printf 'a\377\300\nb\342\202'").await;
    assert_eq!(finished.stdout, "a\u{fffd}\u{fffd}\nb\u{fffd}");
}

#[tokio::test]
async fn command_reads_its_input_until_it_is_closed() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let mut running = fixture.start(sandbox::Launch { has_stdin: true, ..fixture.launch("cat", &[]) });
        let mut stdin = running.take_stdin().unwrap();
        std::io::Write::write_all(&mut stdin, b"typed").unwrap();
        drop(stdin);
        assert_eq!(finish(running).await.stdout, "typed");
        // Without one it reads end of file at once.
        assert_eq!(fixture.run(fixture.launch("cat", &[])).await.stdout, "");
    }
}

#[tokio::test]
async fn missing_program_is_named() {
    let fixture = Fixture::new(TIERS[0]);
    let fault = fixture.launcher.start(fixture.launch("no-such-program", &[])).unwrap_err();
    assert!(matches!(&fault, LaunchFault::ProgramNotFound(name) if name == "no-such-program"));
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run(fixture.launch("./absent", &[])).await;
        let CommandExit::NotStarted(why) = finished.exit else { panic!("{finished:?}") };
        assert!(why.contains("absent: No such file"), "{why}");
    }
}
