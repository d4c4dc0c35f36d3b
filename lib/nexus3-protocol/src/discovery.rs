//! Conventions by which a client finds a local daemon: port, home directory, token files, token format. Reading and
//! writing the files is left to the client and the binary.

/// Default port of the daemon.
pub const PORT_DEFAULT: u16 = 8765;

/// Name of the nexus3 home directory, inside the user's home directory.
pub const HOME_NAME: &str = ".nexus3";

/// Prefix of an admin token.
pub const TOKEN_PREFIX: &str = "nxk_";

/// Number of random bytes in a token, before URL-safe base64 encoding without padding.
pub const TOKEN_BYTES: usize = 32;

/// Maximum size of a token file; a larger file holds no token.
pub const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// Returns the name of the file in the nexus3 home to which the daemon on this port writes its token.
#[must_use]
pub fn token_file_name(port: u16) -> String {
    if port == PORT_DEFAULT { "rpc.token".to_owned() } else { format!("rpc-{port}.token") }
}

/// Returns the names of the files in the nexus3 home that may hold the token for this port, in search order. The last
/// two are the names that older servers used.
#[must_use]
pub fn token_file_candidates(port: u16) -> [String; 4] {
    [
        format!("rpc-{port}.token"),
        "rpc.token".to_owned(),
        format!("server-{port}.key"),
        "server.key".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_name_has_the_port_unless_it_is_the_default() {
        assert_eq!(token_file_name(8765), "rpc.token");
        assert_eq!(token_file_name(9000), "rpc-9000.token");
    }

    #[test]
    fn token_search_starts_at_the_port_file_and_ends_at_old_names() {
        assert_eq!(
            token_file_candidates(9000),
            ["rpc-9000.token", "rpc.token", "server-9000.key", "server.key"]
        );
    }
}
