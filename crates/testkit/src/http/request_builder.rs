//! Builder of HTTP requests for tests: starts from a valid request and changes any part of it.

use crate::client::DaemonClient;

/// A read-only call with the id 1.
pub const LIST_AGENTS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#;

/// An HTTP request under construction. Nothing is validated, so that tests can send malformed requests.
#[derive(Debug, Clone)]
pub struct RequestBuilder {
    method: String,
    target: String,
    version: String,
    headers: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl RequestBuilder {
    /// A request that gets 200: `list_agents` on `/`, with host, token and length.
    pub fn valid(daemon: &DaemonClient) -> Self {
        let request = Self {
            method: "POST".to_owned(),
            target: "/".to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: vec![format!("Host: 127.0.0.1:{}", daemon.port()).into_bytes()],
            body: Vec::new(),
        };
        let request = match daemon.token() {
            Some(token) => request.header(format!("Authorization: Bearer {token}")),
            None => request,
        };
        request.body(LIST_AGENTS)
    }

    /// A request that creates an agent, which shows whether the request ran.
    pub fn create_agent(daemon: &DaemonClient, agent: &str) -> Self {
        let params = format!(r#"{{"agent_id":"{agent}"}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{params}}}"#);
        Self::valid(daemon).body(body)
    }

    /// Sets the method.
    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Sets the request target.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the HTTP version.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Adds a header line; others of the same name stay.
    pub fn header(mut self, line: impl AsRef<[u8]>) -> Self {
        self.headers.push(line.as_ref().to_vec());
        self
    }

    /// Adds a header line and removes all others of the same name.
    pub fn replace_header(self, line: impl AsRef<[u8]>) -> Self {
        let line = line.as_ref();
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().to_vec();
        self.without_header(&String::from_utf8_lossy(&name)).header(line)
    }

    /// Removes all headers of this name.
    pub fn without_header(mut self, name: &str) -> Self {
        let start = format!("{name}:");
        self.headers.retain(|line| {
            !line.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start.as_bytes()))
        });
        self
    }

    /// Sets the body and its Content-Length.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = format!("Content-Length: {}", self.body.len());
        self.replace_header(length)
    }

    /// Sets a chunked body with these chunks.
    pub fn chunks<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut framed = Vec::new();
        for piece in pieces {
            framed.extend(format!("{:x}\r\n", piece.len()).bytes());
            framed.extend(piece);
            framed.extend(b"\r\n");
        }
        framed.extend(b"0\r\n\r\n");
        self.framed(framed)
    }

    /// Sets a chunked body whose framing the caller has written.
    pub fn framed(self, framed: impl AsRef<[u8]>) -> Self {
        let mut request = self.without_header("Content-Length").header("Transfer-Encoding: chunked");
        request.body = framed.as_ref().to_vec();
        request
    }

    /// Size of all header lines, including CR LF.
    pub fn header_bytes(&self) -> usize {
        self.headers.iter().map(|line| line.len() + 2).sum()
    }

    /// The number of header lines.
    pub fn header_count(&self) -> usize {
        self.headers.len()
    }

    /// Request line and headers, with the empty line at the end.
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        for line in &self.headers {
            head.extend_from_slice(line);
            head.extend(b"\r\n");
        }
        head.extend(b"\r\n");
        head
    }

    /// The whole request.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }
}
