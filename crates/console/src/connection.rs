//! Address and token of the daemon that a command calls, and the error texts about them.

use std::io;
use std::path::PathBuf;

use nexus3_client::{Client, ClientFault, Endpoint, Token, TokenFault, TokenSource, discover_token};
use nexus3_protocol::discovery::token_file_candidates;

use crate::ConsoleOptions;
use crate::args::ConnectionArgs;

/// Address and token of the daemon.
pub(crate) struct ConnectionOptions {
    pub(crate) endpoint: Endpoint,
    pub(crate) new_request_id: fn() -> String,
    token: Option<Token>,
    home: PathBuf,
    api_key: Option<String>,
    is_key_from_argument: bool,
}

/// Failure of a command.
pub(crate) enum Failure {
    /// The call failed.
    Call(ClientFault),
    /// Any other failure, as a text for the user.
    Message(String),
}

impl ConnectionOptions {
    pub(crate) fn with_discovered_token(
        args: &ConnectionArgs,
        options: &ConsoleOptions,
    ) -> Result<Self, TokenFault> {
        let mut connection = Self::without_discovery(args, options);
        if connection.token.is_none() {
            connection.token =
                discover_token(&connection.home, connection.api_key.as_deref(), &connection.endpoint)?;
        }
        Ok(connection)
    }

    /// Creates options without reading a token file. A probe sends no token, so an unusable token file must not stop
    /// it.
    pub(crate) fn without_discovery(args: &ConnectionArgs, options: &ConsoleOptions) -> Self {
        Self {
            endpoint: Endpoint::new(&options.host, args.port.unwrap_or(options.port)),
            new_request_id: options.new_request_id,
            token: args.api_key.clone(),
            home: options.home.clone(),
            api_key: options.api_key.clone(),
            is_key_from_argument: args.api_key.is_some(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.endpoint.clone(), self.token.clone())
    }

    /// Creates a client with a newly read token, because a restarted daemon has another one.
    pub(crate) fn fresh_client(&self) -> Result<Client, TokenFault> {
        if self.is_key_from_argument {
            return Ok(self.client());
        }
        let token = discover_token(&self.home, self.api_key.as_deref(), &self.endpoint)?;
        Ok(Client::new(self.endpoint.clone(), token))
    }

    /// Describes the origin of the rejected token.
    fn token_origin(&self) -> String {
        match self.token.as_ref().map(Token::source) {
            Some(TokenSource::File(path)) => format!("the token came from {}", path.display()),
            Some(TokenSource::Given) if self.is_key_from_argument => {
                "the token came from --api-key".to_owned()
            }
            Some(TokenSource::Given) => "the token came from NEXUS3_API_KEY".to_owned(),
            None => format!(
                "no token was found: NEXUS3_API_KEY is not set, and {} has none of {}",
                self.home.display(),
                token_file_candidates(self.endpoint.port()).join(", ")
            ),
        }
    }
}

impl Failure {
    pub(crate) fn explain(&self, connection: &ConnectionOptions) -> String {
        match self {
            Failure::Call(fault @ ClientFault::Rpc { status: 401 | 403, .. }) => {
                format!("{fault}; {}", connection.token_origin())
            }
            other => other.message(),
        }
    }

    /// Returns the error text without the origin of the token.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::Call(fault) => fault.to_string(),
            Failure::Message(text) => text.clone(),
        }
    }

    pub(crate) fn write_failed(fault: impl Into<io::Error>) -> Self {
        Failure::Message(format!("cannot write the output: {}", fault.into()))
    }
}

impl From<ClientFault> for Failure {
    fn from(fault: ClientFault) -> Self {
        Failure::Call(fault)
    }
}
