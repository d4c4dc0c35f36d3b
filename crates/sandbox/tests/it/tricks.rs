//! Programs that look harmless and run others or write files by their options, and wrappers that hide what they run: each
//! line tries to make a file outside. Without a sandbox they succeed, in a sandbox none does, whatever the text looks like.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, TIERS};

/// `$OUT` is the file to make. Programs that are not installed do nothing.
const OPTIONS: &[&str] = &[
    "sed -n \"w $OUT\" file",
    "sed \"1e touch $OUT\" file",
    "sed --in-place=.orig -e \"w $OUT\" file",
    "find . -maxdepth 0 -exec touch \"$OUT\" ';'",
    "find . -maxdepth 0 -execdir touch \"$OUT\" ';'",
    "find . -maxdepth 0 -fprint \"$OUT\"",
    "find . -maxdepth 0 -fls \"$OUT\"",
    "find . -maxdepth 0 -fprintf \"$OUT\" x",
    "find . -maxdepth 0 -ok touch \"$OUT\" ';' <yes",
    "git -c alias.x='!touch \"$OUT\"' x",
    "git -c core.pager='touch \"$OUT\"; cat' -p log",
    "git -c core.fsmonitor='touch \"$OUT\"; false' status",
    "git -c core.editor='touch \"$OUT\"; true' commit --allow-empty",
    "git -c core.sshCommand='touch \"$OUT\"; false' ls-remote ssh://x/y",
    "git -c diff.external='touch \"$OUT\"; true' diff HEAD",
    "git -c core.hooksPath=hooks commit --allow-empty -m x",
    "git ls-remote 'ext::sh -c touch% $OUT'",
    "git -c protocol.ext.allow=always ls-remote \"ext::touch $OUT\"",
    "git grep --open-files-in-pager='touch \"$OUT\";:' line",
    "git diff --no-index --output=\"$OUT\" /dev/null file",
    "git archive -o \"$OUT\" HEAD",
    "git log --output=\"$OUT\"",
    "git bundle create \"$OUT\" HEAD",
    "git init -q \"$OUT\"",
    "git clone -q . \"$OUT\"",
    "git -C / init -q \"$OUT\"",
    "git --git-dir=\"$OUT\" init -q",
    "git format-patch --root -q -o \"$OUT\"",
    "git rebase --exec 'touch \"$OUT\"' --root",
    "git bisect start HEAD && git bisect run touch \"$OUT\"",
    "git submodule foreach 'touch \"$OUT\"' ; git worktree add -q \"$OUT\"",
    "git config --file \"$OUT\" a.b c",
    "tar cf \"$OUT\" file",
    "tar cf x.tar file && tar xf x.tar --to-command='touch \"$OUT\"'",
    "tar cf x.tar file --checkpoint=1 --checkpoint-action=exec='touch \"$OUT\"'",
    "tar cf - -I 'touch \"$OUT\"; cat' file >/dev/null",
    "tar cf x.tar file && mkdir d && tar xf x.tar -C / --transform \"s|.*|$OUT|\" -P",
    "rg --pre hooks/pre-commit line",
    "grep -q line file && cp file \"$OUT\"",
    "sort -o \"$OUT\" file",
    "sort --compress-program=hooks/pre-commit -S 1k long",
    "uniq file \"$OUT\"",
    "split -b 100000 file \"$OUT\" && cat \"$OUT\"* > \"$OUT\"",
    "csplit -f \"$OUT\" file 1 && touch \"$OUT\"",
    "shuf -o \"$OUT\" file",
    "tee \"$OUT\" < file",
    "dd if=file of=\"$OUT\"",
    "install file \"$OUT\"",
    "ln -s file \"$OUT\"",
    "link file \"$OUT\"",
    "mknod \"$OUT\" p",
    "mkfifo \"$OUT\"",
    "truncate -s 1 \"$OUT\"",
    "awk 'BEGIN { system(\"touch \" ENVIRON[\"OUT\"]) }'",
    "awk 'BEGIN { print \"x\" > ENVIRON[\"OUT\"] }'",
    "xargs -a file -I{} touch \"$OUT\"",
    "make -f /dev/null --eval='x:;touch \"$(OUT)\"' x",
    "perl -e 'open F, \">\", $ENV{OUT}'",
    "python3 -c 'import os; open(os.environ[\"OUT\"], \"w\")'",
    "python3 -m zipfile -c \"$OUT\" file",
    "openssl rand -out \"$OUT\" 8",
    "curl -s -o \"$OUT\" file://$PWD/file",
    "wget -q -O \"$OUT\" file://$PWD/file; touch \"$OUT\"",
    "ssh -o ProxyCommand='touch \"$OUT\"' -o StrictHostKeyChecking=no x",
    "rsync -a file \"$OUT\"",
    "rsync -e 'sh -c \"touch $OUT\"' x:y .",
    "vim -es -c \"w $OUT\" -c q! file",
    "ed -s file <<E\nw $OUT\nE",
    "man -P 'touch \"$OUT\"; cat' ls",
    "less -o \"$OUT\" file </dev/null",
    "gzip -c file > \"$OUT\"",
    "cpio -o -F \"$OUT\" < list",
    "m4 -D x='syscmd(touch $OUT)' hooks/m4",
    "patch -o \"$OUT\" file < change",
    "diff --from-file=file change > \"$OUT\"",
    "gcc -E -x c /dev/null -o \"$OUT\"",
    "gcc -wrapper touch,\"$OUT\",-- -c -x c /dev/null",
];

/// The same behind programs that run others.
const WRAPPERS: &[&str] = &[
    "env touch \"$OUT\"",
    "env -i touch \"$OUT\"",
    "env -S \"touch $OUT\"",
    "timeout 5 touch \"$OUT\"",
    "nice touch \"$OUT\"",
    "nohup touch \"$OUT\" 2>/dev/null",
    "ionice touch \"$OUT\"",
    "taskset 1 touch \"$OUT\"",
    "stdbuf -o0 touch \"$OUT\"",
    "setsid -w touch \"$OUT\"",
    "setarch -R touch \"$OUT\"",
    "prlimit touch \"$OUT\"",
    "busybox touch \"$OUT\"",
    "bash -c 'touch \"$OUT\"'",
    "bash -lc 'touch \"$OUT\"'",
    "sh -c \"sh -c 'touch $OUT'\"",
    "dash -c 'touch \"$OUT\"'",
    "perl -e 'system \"touch\", $ENV{OUT}'",
    "python3 -c 'import os; os.system(\"touch $OUT\")'",
    "echo \"touch $OUT\" | sh",
    "eval \"$(echo dG91Y2ggIiRPVVQi | base64 -d)\"",
    "xargs touch <<E\n$OUT\nE",
    "flock lock touch \"$OUT\"",
    "script -qc 'touch \"$OUT\"' /dev/null",
    "watch -g -n 0.1 'touch \"$OUT\"; date +%N'",
    "chroot / touch \"$OUT\"",
    "unshare touch \"$OUT\"",
    "setpriv touch \"$OUT\"",
    "/lib64/ld-linux-x86-64.so.2 /bin/touch \"$OUT\"",
    "true && true && true && true && true && true && true && true && true && true && true && true && true && true \
     && true && true && true && true && true && true && true && true && true && true && true && true && true \
     && true && true && true && true && true && true && true && true && true && true && true && true && true \
     && true && true && true && true && true && true && true && true && true && true && touch \"$OUT\"",
];

/// Makes a repository with a changed file.
const REPOSITORY: &str = "git init -q . && git add file && git commit -q -m x; echo more >> file;";

/// Runs all lines at once, each in a shell, with `OUT` set to a file of its own, in a new directory with a repository.
fn script(lines: &[&str], out: &Path) -> String {
    let mut script = "export HOME=$PWD TMPDIR=$PWD GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 \
        GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org\n"
        .to_owned();
    for (number, line) in lines.iter().enumerate() {
        let out = out.join(number.to_string()).display().to_string();
        let repository = if line.starts_with("git") { REPOSITORY } else { "" };
        let quoted = line.replace('\'', "'\\''");
        script.push_str(&format!(
            "mkdir {number}; (cd {number}; export OUT={out}; echo line > file; echo file > list; echo y > yes; \
             seq 1 2000 > long; mkdir hooks; echo x > hooks/m4; printf -- '--- file\\n+++ file\\n@@ -1 +1 @@\\n-line\\n+other\\n' \
             > change; printf '#!/bin/sh\\ntouch \"$OUT\"; cat\\n' > hooks/pre-commit; chmod 755 hooks/pre-commit; \
             {repository} \
             timeout 10 sh -c '{quoted}') < /dev/null > /dev/null 2>&1 &\n"
        ));
    }
    script + "wait\n"
}

/// How many of the lines make their file without a sandbox, and which do so in one.
async fn attempt(lines: &[&str]) -> (usize, Vec<String>) {
    let made = |directory: &Path| {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let control = Fixture::new(TIERS[0]);
    let script_file = control.inside.join("script");
    std::fs::write(&script_file, script(lines, &control.outside)).unwrap();
    let mut command = Command::new("sh");
    command.arg(&script_file).current_dir(&control.inside).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").status().unwrap();
    let succeeded = made(&control.outside).iter().filter(|name| *name != "secret").count();
    let mut escaped = Vec::new();
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        std::fs::write(fixture.inside.join("script"), script(lines, &fixture.outside)).unwrap();
        let finished = fixture.run(fixture.launch("sh", &["script"])).await;
        let number = (lines.len() - 1).to_string();
        assert!(fixture.inside.join(number).join("file").exists(), "all lines were run: {finished:?}");
        let outside = made(&fixture.outside).into_iter().filter(|name| name != "secret");
        escaped.extend(outside.map(|name| format!("{} {name}", tier.name())));
    }
    (succeeded, escaped)
}

#[tokio::test]
async fn threat_76_options_of_safe_programs_reach_nothing() {
    let (succeeded, escaped) = attempt(OPTIONS).await;
    eprintln!("{succeeded} of {} succeed without a sandbox", OPTIONS.len());
    assert_eq!(escaped, [""; 0]);
    assert!(succeeded > OPTIONS.len() / 3, "{succeeded} succeed without a sandbox");
}

#[tokio::test]
async fn threat_77_wrapped_programs_reach_nothing() {
    let (succeeded, escaped) = attempt(WRAPPERS).await;
    eprintln!("{succeeded} of {} succeed without a sandbox", WRAPPERS.len());
    assert_eq!(escaped, [""; 0]);
    assert!(succeeded > WRAPPERS.len() / 2, "{succeeded} succeed without a sandbox");
}
