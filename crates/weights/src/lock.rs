//! Lock file of a model, which names its holder. The kernel releases the lock when the process exits.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::fault::WeightsFault;
use crate::model_id::ModelId;

/// Most bytes read from a lock file.
const HOLDER_BYTES_MAX: u64 = 200;

/// Exclusive lock on the files of one model.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Unlocks explicitly instead of by closing the file: a child process between fork and exec shares the descriptor
    /// and would hold the lock for that moment.
    fn drop(&mut self) {
        // The kernel releases the lock at the latest when the process exits.
        let _ = self.file.unlock();
    }
}

impl Lock {
    pub(crate) fn acquire(path: &Path, id: &ModelId) -> Result<Self, WeightsFault> {
        let lock_fault = WeightsFault::file("lock", path);
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = open.map_err(&lock_fault)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                return Err(WeightsFault::Busy { id: id.clone(), holder });
            }
            Err(TryLockError::Error(fault)) => return Err(lock_fault(fault)),
        }
        let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        let written = (|| {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "process {}, since {since}", std::process::id())
        })();
        written.map_err(lock_fault)?;
        Ok(Self { file })
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let is_plain = !text.is_empty() && !text.contains(char::is_control);
    if read.is_ok() && is_plain { text } else { "another process".to_owned() }
}
