//! Routes events to standard error, to one of their agent's files, or nowhere. The nearest enclosing span with a field
//! `agent` determines the agent.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::queue::LogSender;
use super::record::{AgentDirectory, LogStream};
use super::text::push_escaped;

const CONTEXT_TARGET: &str = "nexus3::context";
const RAW_TARGET: &str = "nexus3::raw";
const AUDIT_TARGET: &str = "nexus3::audit";
const AGENT_FIELD: &str = "agent";

/// Characters of an agent id that a message shows.
const ID_CHARS_MAX: usize = 80;

/// Which events are logged, decided by an event's static metadata. `tracing` caches the result per call site, so that a
/// disabled stream costs a load and a branch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogFilter {
    pub(crate) level: Level,
    pub(crate) verbose: bool,
    pub(crate) raw: bool,
}

impl LogFilter {
    /// Whether any output needs this span or event.
    pub(crate) fn is_enabled(self, metadata: &Metadata<'_>) -> bool {
        if metadata.is_span() {
            *metadata.level() <= self.level || metadata.fields().field(AGENT_FIELD).is_some()
        } else {
            self.is_enabled_on_stderr(metadata) || self.stream_for(metadata).is_some() || is_audit(metadata)
        }
    }

    pub(crate) fn is_enabled_on_stderr(self, metadata: &Metadata<'_>) -> bool {
        // Messages and model traffic go only to the agents' own files.
        let is_private = matches!(metadata.target(), CONTEXT_TARGET | RAW_TARGET);
        !is_private && *metadata.level() <= self.level
    }

    fn stream_for(self, metadata: &Metadata<'_>) -> Option<LogStream> {
        match metadata.target() {
            CONTEXT_TARGET => Some(LogStream::Context),
            RAW_TARGET => self.raw.then_some(LogStream::Raw),
            _ => (self.verbose && *metadata.level() <= Level::DEBUG).then_some(LogStream::Verbose),
        }
    }
}

/// Whether an event belongs to the audit trail, which is always written.
fn is_audit(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && metadata.target() == AUDIT_TARGET
}

/// Layer that sends events to the files of their agents.
#[derive(Debug)]
pub(crate) struct Router {
    filter: LogFilter,
    sender: LogSender,
}

/// Span extension with the agent's directory. `None` when the id was invalid: the span's events are dropped, so that
/// they do not go to the agent of an outer span.
struct Route(Option<AgentDirectory>);

impl Router {
    pub(crate) fn new(filter: LogFilter, sender: LogSender) -> Self {
        Self { filter, sender }
    }

    fn resolve_route(&self, id: &str) -> Route {
        let directory = AgentDirectory::new(id);
        if directory.is_none() {
            let mut shown = String::new();
            push_escaped(&mut shown, &id.chars().take(ID_CHARS_MAX).collect::<String>());
            self.sender.report_invalid_id(shown);
        }
        Route(directory)
    }

    fn attach_route<S>(&self, visitor: AgentVisitor, id: &Id, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        let Some(agent) = visitor.agent else { return };
        let Some(span) = ctx.span(id) else { return };
        let route = self.resolve_route(&agent);
        span.extensions_mut().replace(route);
    }
}

impl<S> Layer<S> for Router
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut visitor = AgentVisitor::default();
        attributes.record(&mut visitor);
        self.attach_route(visitor, id, &ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let mut visitor = AgentVisitor::default();
        values.record(&mut visitor);
        self.attach_route(visitor, id, &ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        if is_audit(event.metadata()) {
            let audit = LogStream::Audit;
            self.sender.send(AgentDirectory::daemon(), audit, audit.render(event));
        }
        let Some(stream) = self.filter.stream_for(event.metadata()) else { return };
        let Some(mut scope) = ctx.event_scope(event) else { return };
        let nearest = scope.find_map(|span| span.extensions().get::<Route>().map(|route| route.0.clone()));
        if let Some(Some(agent)) = nearest
            && !(stream == LogStream::Context && agent.is_temporary())
        {
            self.sender.send(agent, stream, stream.render(event));
        }
    }
}

#[derive(Default)]
struct AgentVisitor {
    agent: Option<String>,
}

impl Visit for AgentVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == AGENT_FIELD {
            self.agent = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == AGENT_FIELD {
            self.agent = Some(format!("{value:?}"));
        }
    }
}
