//! Built-ins for the tests: one that tries what a built-in may not do, and some that end in another way than a result.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use sandbox::BuiltIn;

pub(crate) const BUILT_INS: &[BuiltIn] = &[
    BuiltIn { name: "tries", run: try_everything },
    BuiltIn { name: "echo", run: |input| Ok(input.to_vec()) },
    BuiltIn { name: "fails", run: |_| Err("it did not work".to_owned()) },
    BuiltIn { name: "panics", run: |input| Ok(vec![input[input.len()]]) },
    BuiltIn { name: "allocates", run: |_| Ok(vec![1; 3 << 30]) },
    BuiltIn { name: "waits", run: wait_for_pipe },
];

/// Opens the named pipe of the input, which blocks without end.
fn wait_for_pipe(input: &[u8]) -> Result<Vec<u8>, String> {
    let path = String::from_utf8_lossy(input).into_owned();
    File::open(path).map(|_| Vec::new()).map_err(|error| error.to_string())
}

/// Tries everything; the input is the granted directory and one beside it. Returns a line for each attempt that worked.
fn try_everything(input: &[u8]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(input);
    let (inside, outside) = text.split_once('\n').ok_or("two directories are needed")?;
    let new = format!("{inside}/new");
    let attempts: [(&str, io::Result<()>); 15] = [
        ("read inside", fs::read(format!("{inside}/file")).map(drop)),
        ("list inside", fs::read_dir(inside).map(drop)),
        ("thread", std::thread::Builder::new().spawn(|| {}).map(drop)),
        ("read outside", fs::read(format!("{outside}/secret")).map(drop)),
        ("list outside", fs::read_dir(outside).map(drop)),
        ("read system", fs::read("/etc/passwd").map(drop)),
        ("read program", fs::read("/proc/self/exe").map(drop)),
        ("write inside", fs::write(new, "x")),
        ("write temporary", fs::write("/tmp/built-in-was-here", "x")),
        ("delete inside", fs::remove_file(format!("{inside}/file"))),
        // A program that is executed ends this one without a result.
        ("execute inside", Err(Command::new(format!("{inside}/program")).exec())),
        ("execute system", Err(Command::new("/bin/true").exec())),
        ("process", Command::new("/bin/true").status().map(drop)),
        ("network", TcpListener::bind("127.0.0.1:0").map(drop)),
        ("socket pair", UnixStream::pair().map(drop)),
    ];
    let worked = attempts.iter().filter(|(_, result)| result.is_ok()).map(|(what, _)| format!("{what}\n"));
    let descriptors = (3..1024).filter(|number| is_open(*number)).map(|number| format!("open {number}\n"));
    Ok(worked.chain(descriptors).collect::<String>().into_bytes())
}

/// Whether a descriptor is open: the path of an open one exists, but Landlock does not let this process read it.
fn is_open(number: u32) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}
