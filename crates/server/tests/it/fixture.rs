//! The door under test: real sockets and the real dispatcher, over a pool in memory with a scripted model.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use agent::outside::ModelSpec;
use jiff::tz::TimeZone;
use rpc::{Dispatcher, DispatcherOptions};
use runtime::{Outside, PoolHandle, PoolOptions};
use server::http::{HttpLimits, HttpOptions, HttpTransport};
use server::{BoundSocket, Doors, Host};
use testkit::{CountingEntropy, DaemonClient, ScriptedProvider, SingleModel, TestClock, WINDOW_TOKENS};
use tokio::runtime::Runtime;
use tools::{LocalWorkspace, ToolDependencies, ToolRegistry};

const TOKEN: &str = "nxk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

/// Options of the door under test.
#[must_use = "nothing runs before open"]
pub(crate) struct DoorBuilder {
    options: HttpOptions,
}

/// Prepares a door with the default limits, on a free port, that requires a token.
pub(crate) fn door() -> DoorBuilder {
    DoorBuilder { options: HttpOptions { token: Some(TOKEN.to_owned()), ..HttpOptions::default() } }
}

impl DoorBuilder {
    pub(crate) fn limits(mut self, change: impl FnOnce(&mut HttpLimits)) -> Self {
        change(&mut self.options.limits);
        self
    }

    pub(crate) fn allowed_origin(mut self, origin: &str) -> Self {
        self.options.allowed_origins.push(origin.to_owned());
        self
    }

    pub(crate) fn without_token(mut self) -> Self {
        self.options.token = None;
        self
    }

    pub(crate) fn open(self) -> TestDoor {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime can be created");
        let model = Arc::new(ScriptedProvider::new(ModelSpec::with_window(WINDOW_TOKENS)));
        let token = self.options.token.clone();
        let listener = server::bind(Host::Ipv4, 0).and_then(BoundSocket::listen).expect("a port is free");
        let port = listener.address().port();
        let doors = runtime.block_on(async {
            let dispatcher = dispatcher(Arc::clone(&model)).await;
            let transport = Box::new(HttpTransport::new(listener, self.options));
            Doors::open(vec![transport], &dispatcher).expect("the door can be opened")
        });
        TestDoor { client: DaemonClient::new(port, token), model, _doors: doors, runtime: Some(runtime) }
    }
}

/// Returns a dispatcher over a pool in memory.
pub(crate) async fn dispatcher(model: Arc<ScriptedProvider>) -> Dispatcher {
    let (clock, entropy) = (Arc::new(TestClock::default()), Arc::new(CountingEntropy::default()));
    let dependencies = ToolDependencies {
        clock: clock.clone(),
        entropy: entropy.clone(),
        commands: Arc::new(tools::CommandRunner::refusing("this test runs no commands")),
        network: Arc::default(),
    };
    let outside = Outside {
        models: Arc::new(SingleModel { model, names: Vec::new() }),
        tools: Arc::new(ToolRegistry::new(dependencies)),
        workspace: Arc::new(LocalWorkspace::new(None)),
        clock,
        entropy,
        store: store::memory(),
    };
    let pool = PoolHandle::open(PoolOptions::default(), outside).await.expect("an empty pool can be opened");
    Dispatcher::new(pool, DispatcherOptions { zone: TimeZone::UTC })
}

/// An open door; calls go through its [`DaemonClient`]. Dropping it ends all its tasks.
pub(crate) struct TestDoor {
    client: DaemonClient,
    pub(crate) model: Arc<ScriptedProvider>,
    _doors: Doors,
    runtime: Option<Runtime>,
}

impl TestDoor {
    /// Runs a future that waits for the model.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("the runtime ends with the door").block_on(future)
    }
}

impl Deref for TestDoor {
    type Target = DaemonClient;

    fn deref(&self) -> &DaemonClient {
        &self.client
    }
}

impl Drop for TestDoor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
