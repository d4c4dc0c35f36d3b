//! The agents' log files: opened with owner-only permissions and without following links, a bounded number at a time,
//! rotated when full. Only the writer's thread uses them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::record::{AgentDirectory, StreamKey};

const DIRECTORY_MODE: u32 = 0o700;

/// Limits on size, number and open handles of log files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileLimits {
    pub(crate) file_bytes_max: u64,
    /// Number of files per log, including the current one.
    pub(crate) files_max: usize,
    pub(crate) handles_max: usize,
}

/// A failed append; some of the records may have been written.
#[derive(Debug)]
pub(crate) struct AppendFault {
    /// Bytes of the records that were written completely.
    pub(crate) written_bytes: usize,
    pub(crate) fault: io::Error,
}

/// The log files of all agents, with a bounded cache of open handles.
#[derive(Debug)]
pub(crate) struct LogFiles {
    directory: PathBuf,
    limits: FileLimits,
    open_handles: HashMap<StreamKey, Handle>,
    /// Use counter; the handle with the smallest `last_used` is evicted first.
    use_count: u64,
}

#[derive(Debug)]
struct Handle {
    file: Arc<File>,
    last_used: u64,
}

impl LogFiles {
    pub(crate) fn new(directory: PathBuf, limits: FileLimits) -> Self {
        Self { directory, limits, open_handles: HashMap::new(), use_count: 0 }
    }

    /// Appends one record.
    pub(crate) fn append(&mut self, key: &StreamKey, record: &[u8]) -> io::Result<()> {
        self.append_all(key, record, &[record.len()]).map_err(|failed| failed.fault)
    }

    /// Appends concatenated records that end at the offsets `ends`. Rotates between records, never inside one; a record
    /// larger than the size limit gets a file of its own.
    pub(crate) fn append_all(
        &mut self,
        key: &StreamKey,
        records: &[u8],
        ends: &[usize],
    ) -> Result<(), AppendFault> {
        let mut written = 0;
        while written < records.len() {
            match self.try_append(key, &records[written..], ends, written) {
                Ok(more) => written += more,
                Err(fault) => {
                    // Reopen for the next record, from the file's state on disk.
                    self.open_handles.remove(key);
                    return Err(AppendFault { written_bytes: written, fault });
                }
            }
        }
        Ok(())
    }

    /// Path of a stream's file, for messages.
    pub(crate) fn path(&self, key: &StreamKey) -> PathBuf {
        self.directory.join(key.agent.as_str()).join(key.stream.file_name())
    }

    /// Appends as many records as fit the current file, at least one; returns the bytes written.
    fn try_append(
        &mut self,
        key: &StreamKey,
        records: &[u8],
        ends: &[usize],
        written: usize,
    ) -> io::Result<usize> {
        let mut ends = ends.iter().filter_map(|end| end.checked_sub(written)).filter(|end| *end > 0);
        let first = ends.next().unwrap_or(records.len());
        let (mut file, mut length) = self.current_file(key)?;
        let max = self.limits.file_bytes_max;
        let fits = |bytes: usize, length: u64| length.saturating_add(bytes as u64) <= max;
        if length > 0 && !fits(first, length) {
            self.open_handles.remove(key);
            self.rotate(key)?;
            (file, length) = self.current_file(key)?;
        }
        let bytes = ends.take_while(|end| fits(*end, length)).last().unwrap_or(first);
        (&*file).write_all(&records[..bytes]).inspect_err(|_| {
            // A full disk can leave a partial record; the next one must not continue its line.
            let _ = file.set_len(length);
        })?;
        Ok(bytes)
    }

    /// Returns the current file, opened on demand, and its length.
    fn current_file(&mut self, key: &StreamKey) -> io::Result<(Arc<File>, u64)> {
        self.use_count += 1;
        if let Some(handle) = self.open_handles.get_mut(key) {
            let metadata = handle.file.metadata()?;
            // The file or its directory may have been deleted; writes to the open handle would be lost.
            if metadata.nlink() > 0 {
                handle.last_used = self.use_count;
                return Ok((Arc::clone(&handle.file), metadata.len()));
            }
            self.open_handles.remove(key);
        }
        let file = Arc::new(self.open_file(key)?);
        let length = file.metadata()?.len();
        self.evict_oldest();
        self.open_handles.insert(key.clone(), Handle { file: Arc::clone(&file), last_used: self.use_count });
        Ok((file, length))
    }

    fn evict_oldest(&mut self) {
        while self.open_handles.len() >= self.limits.handles_max.max(1) {
            let oldest = self
                .open_handles
                .iter()
                .min_by_key(|(_, handle)| handle.last_used)
                .map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.open_handles.remove(&oldest);
        }
    }

    fn open_file(&self, key: &StreamKey) -> io::Result<File> {
        let directory = self.open_directory(&key.agent)?;
        // NONBLOCK: opening a FIFO in the file's place must not block the writer.
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(&directory, key.stream.file_name(), flags, mode)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }

    fn open_directory(&self, agent: &AgentDirectory) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let base = match rustix::fs::open(&self.directory, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                create_directory(&self.directory)?;
                rustix::fs::open(&self.directory, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let name = agent.as_str();
        match rustix::fs::openat(&base, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&base, name, Mode::RWXU)?;
                Ok(rustix::fs::openat(&base, name, flags, Mode::empty())?)
            }
            opened => Ok(opened?),
        }
    }

    /// Renames `x` to `x.1`, `x.1` to `x.2` and so on; deletes files beyond `files_max`.
    fn rotate(&self, key: &StreamKey) -> io::Result<()> {
        let directory = self.open_directory(&key.agent)?;
        let name = key.stream.file_name();
        let numbered = |number: usize| if number == 0 { name.to_owned() } else { format!("{name}.{number}") };
        for number in (0..self.limits.files_max.saturating_sub(1)).rev() {
            match rustix::fs::renameat(&directory, numbered(number), &directory, numbered(number + 1)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        // Includes files of an earlier, larger limit; with a limit of one, the current file itself.
        let first_excess = if self.limits.files_max <= 1 { 0 } else { self.limits.files_max };
        for number in first_excess.. {
            match rustix::fs::unlinkat(&directory, numbered(number), AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::NOENT) => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }
}

/// Creates the log directory and its parents with owner-only permissions.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}
