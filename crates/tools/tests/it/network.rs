//! Tools that connect to hosts, against servers of the tests. Threats have the numbers of `docs/reference/threats.md`.

mod addresses;
mod bounds;
mod rebinding;
mod redirects;
mod requests;

use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex};

use agent::ToolOutcome;
use agent::outside::BoxFuture;
use agent::permission::{Grant, HostPattern, HostSet};
use serde_json::{Value, json};
use tools::{NetworkLimits, NetworkOptions, Resolve, ResolvedAddresses};

use crate::fixture::Fixture;

/// A resolver whose answers the test computes from the name and the number of the lookup, from 0.
struct ScriptedResolver<F> {
    lookups: Arc<Mutex<Vec<String>>>,
    answer: F,
}

impl<F: Fn(&str, usize) -> Vec<IpAddr> + Send + Sync> Resolve for ScriptedResolver<F> {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ResolvedAddresses> {
        let mut lookups = self.lookups.lock().unwrap();
        let addresses = (self.answer)(name, lookups.len());
        lookups.push(name.to_owned());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// An agent that may connect to some hosts, and the names that were looked up for it.
struct Client {
    fixture: Fixture,
    lookups: Arc<Mutex<Vec<String>>>,
}

impl Client {
    /// All names resolve to 127.0.0.1.
    fn new(allowed: &[&str]) -> Self {
        Self::with_limits(allowed, NetworkLimits::default())
    }

    fn with_limits(allowed: &[&str], limits: NetworkLimits) -> Self {
        Self::with_resolver(allowed, limits, |_, _| addresses(&["127.0.0.1"]))
    }

    fn with_resolver(
        allowed: &[&str],
        limits: NetworkLimits,
        answer: impl Fn(&str, usize) -> Vec<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        let lookups = Arc::default();
        let resolver = Arc::new(ScriptedResolver { lookups: Arc::clone(&lookups), answer });
        let options = NetworkOptions { limits, resolver, ..NetworkOptions::default() };
        Self { fixture: Fixture::with_network("/nowhere", grant(allowed), options), lookups }
    }

    async fn request(&self, arguments: Value) -> ToolOutcome {
        self.fixture.call("http.request", &arguments).await
    }

    async fn get(&self, url: &str) -> ToolOutcome {
        self.request(json!({ "url": url })).await
    }

    /// The response of a request that succeeds, as JSON.
    async fn response(&self, arguments: Value) -> Value {
        match self.request(arguments.clone()).await {
            ToolOutcome::Done(text) => serde_json::from_str(&text).unwrap(),
            outcome => panic!("{arguments}: {outcome:?}"),
        }
    }
}

fn grant(allowed: &[&str]) -> Grant {
    let patterns = allowed.iter().map(|text| HostPattern::parse(text).expect(text));
    Grant { hosts: HostSet::new(patterns, []), ..Grant::everything() }
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A listener on all addresses of this machine that nothing may reach.
struct Canary(TcpListener);

impl Canary {
    fn start() -> Self {
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    #[track_caller]
    fn assert_untouched(&self) {
        let accepted = self.0.accept().map(|(_, from)| from);
        assert_eq!(accepted.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[track_caller]
fn assert_refused(outcome: &ToolOutcome, what: &str) {
    let is_refused = match outcome {
        ToolOutcome::Denied(text) => text.contains("is not allowed: "),
        ToolOutcome::Failed(text) => text.starts_with("Invalid input: field `url`: "),
        _ => false,
    };
    assert!(is_refused, "{what}: {outcome:?}");
}
