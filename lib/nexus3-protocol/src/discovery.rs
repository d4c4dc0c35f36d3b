//! The names by which a client finds a daemon on its machine: port, home, token files, token shape. Reading and writing
//! the files is left to the client and the binary.

/// The port a daemon listens on when nothing else is said.
pub const PORT_DEFAULT: u16 = 8765;

/// The home directory's name below the user's own.
pub const HOME_NAME: &str = ".nexus3";

/// The start of an admin token.
pub const TOKEN_PREFIX: &str = "nxk_";

/// Random bytes in a token, before they are written in URL-safe base64 without padding.
pub const TOKEN_BYTES: usize = 32;

/// The most bytes a token file may hold; more is not a token.
pub const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// The file, inside the home, where the daemon of this port leaves its token.
#[must_use]
pub fn token_file_name(port: u16) -> String {
    if port == PORT_DEFAULT { "rpc.token".to_owned() } else { format!("rpc-{port}.token") }
}

/// The files, inside the home, where a client looks for the token of this port, first to last. The last two are what
/// servers of an older generation wrote.
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
    fn the_default_port_has_the_plain_file_and_others_carry_their_number() {
        assert_eq!(token_file_name(8765), "rpc.token");
        assert_eq!(token_file_name(9000), "rpc-9000.token");
    }

    #[test]
    fn a_client_looks_at_the_ports_file_first_and_at_older_names_last() {
        assert_eq!(
            token_file_candidates(9000),
            ["rpc-9000.token", "rpc.token", "server-9000.key", "server.key"]
        );
    }
}
