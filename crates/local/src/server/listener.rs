//! Listening sockets of the model server: a Unix socket for the same user only, or loopback TCP. Nothing else can be
//! bound.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A listening socket. Dropping it closes it and removes a Unix socket's file.
#[derive(Debug)]
pub struct ModelListener {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Unix { socket: UnixListener, file: SocketFile },
    Tcp(TcpListener),
}

/// File of a Unix socket. Its inode tells it from the file of another server that replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// An accepted connection.
pub(super) enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl ModelListener {
    /// Listens on a Unix socket at `path`, for the same user only. Replaces a stale socket file.
    ///
    /// # Errors
    /// When a server listens there, the path is not a socket, or the system call fails. Needs a tokio runtime.
    pub fn unix(path: &Path) -> io::Result<Self> {
        remove_stale_socket(path)?;
        let socket = std::os::unix::net::UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        let inode = std::fs::symlink_metadata(path)?.ino();
        let file = SocketFile { path: path.to_path_buf(), inode };
        Ok(Self { socket: Socket::Unix { socket: UnixListener::from_std(socket)?, file } })
    }

    /// Listens on 127.0.0.1; port 0 selects a free one.
    ///
    /// # Errors
    /// When the port is in use or the system call fails. Needs a tokio runtime.
    pub fn tcp(port: u16) -> io::Result<Self> {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Socket::Tcp(TcpListener::from_std(socket)?) })
    }

    /// The address for display: `unix:PATH` or `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Unix { file, .. } => format!("unix:{}", file.path.display()),
            Socket::Tcp(socket) => match socket.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => "http://127.0.0.1".to_owned(),
            },
        }
    }

    /// Whether it is a TCP socket, which browsers on this machine can reach.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    /// Accepts the next connection; rejects other users on a Unix socket.
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream))
            }
            Socket::Unix { socket, .. } => {
                let (stream, _) = socket.accept().await?;
                let user = stream.peer_cred()?.uid();
                if user != 0 && user != rustix::process::geteuid().as_raw() {
                    let text = format!("connection from user {user} rejected");
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
                }
                Ok(Connection::Unix(stream))
            }
        }
    }
}

/// Removes the socket file that a killed server left behind.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(fault),
    };
    if !metadata.file_type().is_socket() {
        let text = format!("{} exists and is not a socket; choose another path", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(fault) if fault.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => {
            let text = format!("another server listens on {}; choose another path", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_ours && let Err(fault) = std::fs::remove_file(&self.path) {
            tracing::debug!(%fault, "cannot remove the socket file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = ModelListener::unix(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = ModelListener::unix(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn file_that_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(ModelListener::unix(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[tokio::test]
    async fn socket_file_of_a_successor_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.sock");
        let first = ModelListener::unix(&path).unwrap();
        std::fs::rename(&path, directory.path().join("moved.sock")).unwrap();
        let _second = ModelListener::unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
