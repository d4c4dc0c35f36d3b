//! One worker per model: a locked file that says who has it. The lock ends with its process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::fault::WeightsFault;
use crate::model_id::ModelId;

/// What a lock file may say at most.
const HOLDER_BYTES_MAX: u64 = 200;

/// The right to change what belongs to one model.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Said, and not left to the end of the file: a program that is just being started shares the file for a moment, and
    /// would hold the lock for as long.
    fn drop(&mut self) {
        // It ends with the process in any case.
        let _ = self.file.unlock();
    }
}

impl Lock {
    pub(crate) fn acquire(path: &Path, id: &ModelId) -> Result<Self, WeightsFault> {
        let cannot = WeightsFault::file("lock", path);
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = open.map_err(&cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                return Err(WeightsFault::Busy { id: id.clone(), holder });
            }
            Err(TryLockError::Error(fault)) => return Err(cannot(fault)),
        }
        let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        let told = (|| {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "process {}, since {since}", std::process::id())
        })();
        told.map_err(cannot)?;
        Ok(Self { file })
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let plain = !text.is_empty() && !text.contains(char::is_control);
    if read.is_ok() && plain { text } else { "another process".to_owned() }
}
