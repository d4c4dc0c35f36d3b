//! Log output on standard error: escaped text lines, or JSON lines. The content of a message can break neither format.

use std::fmt;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Registry};

use super::router::LogFilter;
use super::text::{FieldLine, stderr_timestamp};

const DIM: &str = "2";

/// Format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StderrFormat {
    Plain,
    Colored,
    Json,
}

/// Creates the layer that writes events enabled for standard error to `writer`.
pub(crate) fn layer<W>(
    format: StderrFormat,
    filter: LogFilter,
    writer: W,
) -> impl Layer<Registry> + Send + Sync
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // Without `log_internal_errors(false)`, a closed standard error would panic in the thread that logs.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    let inner = match format {
        StderrFormat::Json => lines.json().with_current_span(false).with_span_list(true).boxed(),
        StderrFormat::Plain | StderrFormat::Colored => lines
            .with_ansi(format == StderrFormat::Colored)
            .fmt_fields(EscapedFields)
            .event_format(HumanFormat)
            .boxed(),
    };
    StderrFilter { filter, inner }
}

/// Hides private events from the inner layer, but forwards all spans: the layer needs their fields later.
struct StderrFilter<L> {
    filter: LogFilter,
    inner: L,
}

impl<S, L> Layer<S> for StderrFilter<L>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    L: Layer<S>,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        self.inner.on_new_span(attributes, id, ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        self.inner.on_record(id, values, ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        if self.filter.is_enabled_on_stderr(event.metadata()) {
            self.inner.on_event(event, ctx);
        }
    }
}

/// Formats fields on one line, escaped.
struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = FieldLine::default();
        fields.record(&mut line);
        writer.write_str(&line.into_text())
    }
}

/// Formats time, level, target, message and fields, then the enclosing spans.
struct HumanFormat;

impl<S, N> FormatEvent<S, N> for HumanFormat
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        paint(&mut writer, DIM, &stderr_timestamp())?;
        writer.write_char(' ')?;
        paint(&mut writer, level_color(*metadata.level()), &format!("{:>5}", metadata.level().as_str()))?;
        writer.write_char(' ')?;
        paint(&mut writer, DIM, &format!("{}:", metadata.target()))?;
        writer.write_char(' ')?;
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map_or("", |fields| fields.fields.as_str());
            let space = if fields.is_empty() { "" } else { " " };
            paint(&mut writer, DIM, &format!(" ({}{space}{fields})", span.name()))?;
        }
        writeln!(writer)
    }
}

fn paint(writer: &mut Writer<'_>, color: &str, text: &str) -> fmt::Result {
    if writer.has_ansi_escapes() {
        write!(writer, "\x1b[{color}m{text}\x1b[0m")
    } else {
        writer.write_str(text)
    }
}

fn level_color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        Level::INFO => "32",
        Level::DEBUG => "34",
        Level::TRACE => "35",
    }
}
