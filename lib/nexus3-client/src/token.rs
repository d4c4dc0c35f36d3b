//! Bearer token of a client: validation, and discovery in token files. The names of the files are defined in
//! [`nexus3_protocol::discovery`].

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use nexus3_protocol::discovery::{TOKEN_FILE_BYTES_MAX, token_file_candidates};

use crate::Endpoint;

/// A bearer token that is valid in a header. Neither `Debug` nor `Display` shows its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    authorization: HeaderValue,
    source: TokenSource,
}

/// Origin of a token, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Passed in by the caller.
    Given,
    /// Read from this file.
    File(PathBuf),
}

/// A token that cannot be used. The text never contains a token's value.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// Other users can access the file, so its token may no longer be secret.
    #[error(
        "token file {path} can be read by others (mode {mode:04o}); fix it with: chmod 600 {path}",
        path = .path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// The file is a symbolic link: its creator, not the daemon, decides which file is read.
    #[error("token file {} is a symbolic link; put the token itself there, with mode 600", .0.display())]
    Symlink(PathBuf),
    /// The path is a directory, pipe or device.
    #[error("token file {} is not a regular file; remove it", .0.display())]
    NotAFile(PathBuf),
    /// The file is larger than [`TOKEN_FILE_BYTES_MAX`].
    #[error("token file {} is larger than {TOKEN_FILE_BYTES_MAX} bytes, so it holds no token; remove it", .0.display())]
    Oversized(PathBuf),
    /// The file cannot be read.
    #[error("token file {} cannot be read: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system error.
        #[source]
        cause: std::io::Error,
    },
    /// The content of the file is not a token.
    #[error("token file {} holds no token: {rule}; remove it, or restart the daemon to rewrite it", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The violated rule.
        rule: &'static str,
    },
    /// The value passed in by the caller is not a token.
    #[error("the given API key is not a token: {0}")]
    Given(&'static str),
}

impl Token {
    /// Parses a token; ignores surrounding whitespace.
    ///
    /// # Errors
    /// When it is empty, too long, or has invalid characters.
    pub fn parse(text: &str) -> Result<Self, TokenFault> {
        let authorization = bearer_header(text.as_bytes()).map_err(TokenFault::Given)?;
        Ok(Self { authorization, source: TokenSource::Given })
    }

    /// Origin of the token.
    #[must_use]
    pub fn source(&self) -> &TokenSource {
        &self.source
    }

    pub(crate) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Token({:?})", self.source)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(token)")
    }
}

/// Finds the token for a daemon: `explicit` (the value of `NEXUS3_API_KEY`; blank counts as not set), then the first of
/// the port's token files that exists in `home`. A host that is not loopback gets no token from a file: it was written
/// for a daemon on this machine.
///
/// # Errors
/// When the first token found cannot be used. It is not skipped, because the next one would belong to another daemon.
pub fn discover_token(
    home: &Path,
    explicit: Option<&str>,
    endpoint: &Endpoint,
) -> Result<Option<Token>, TokenFault> {
    if let Some(text) = explicit.filter(|text| !text.trim_ascii().is_empty()) {
        return Token::parse(text).map(Some);
    }
    if !endpoint.is_loopback() {
        return Ok(None);
    }
    for name in token_file_candidates(endpoint.port()) {
        if let Some(token) = read_token(home.join(name))? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// Reads a token file; returns `None` when it does not exist.
fn read_token(path: PathBuf) -> Result<Option<Token>, TokenFault> {
    let Some(mut file) = open_token_file(&path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    if let Err(cause) = (&mut file).take(TOKEN_FILE_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return Err(TokenFault::Unreadable { path, cause });
    }
    if bytes.len() as u64 > TOKEN_FILE_BYTES_MAX {
        return Err(TokenFault::Oversized(path));
    }
    match bearer_header(&bytes) {
        Ok(authorization) => Ok(Some(Token { authorization, source: TokenSource::File(path) })),
        Err(rule) => Err(TokenFault::Malformed { path, rule }),
    }
}

fn open_token_file(path: &Path) -> Result<Option<File>, TokenFault> {
    let unreadable = |cause| TokenFault::Unreadable { path: path.to_owned(), cause };
    let path_metadata = match std::fs::symlink_metadata(path) {
        Ok(path_metadata) => path_metadata,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(unreadable(cause)),
    };
    check_file(path, &path_metadata)?;
    let file = File::open(path).map_err(unreadable)?;
    let file_metadata = file.metadata().map_err(unreadable)?;
    // `open` follows links: a link created after the check leads to another file.
    if (file_metadata.dev(), file_metadata.ino()) != (path_metadata.dev(), path_metadata.ino()) {
        return Err(TokenFault::Symlink(path.to_owned()));
    }
    check_file(path, &file_metadata)?;
    Ok(Some(file))
}

fn check_file(path: &Path, metadata: &Metadata) -> Result<(), TokenFault> {
    if metadata.is_symlink() {
        return Err(TokenFault::Symlink(path.to_owned()));
    }
    if !metadata.is_file() {
        return Err(TokenFault::NotAFile(path.to_owned()));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenFault::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

fn bearer_header(bytes: &[u8]) -> Result<HeaderValue, &'static str> {
    let trimmed = bytes.trim_ascii();
    if trimmed.is_empty() {
        return Err("it is empty");
    }
    if trimmed.len() as u64 > TOKEN_FILE_BYTES_MAX {
        return Err("it is too long");
    }
    if !trimmed.iter().all(u8::is_ascii_graphic) {
        return Err("a token is one word of visible ASCII characters");
    }
    let header = HeaderValue::from_bytes(&[b"Bearer ", trimmed].concat());
    let mut header = header.map_err(|_| "a token is one word of visible ASCII characters")?;
    header.set_sensitive(true);
    Ok(header)
}
