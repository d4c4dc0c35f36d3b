//! Reads the events of a Responses answer. The last event holds the whole response once more: what a server left out
//! of its stream is taken from there.

use agent::outside::StopReason;
use agent::{Fault, Usage};
use serde::Deserialize;

use crate::dialect::AnswerReader;
use crate::reading::{Each, End, Progress, Raw, grow, more_arguments, part, piece, text, tokens, told_fault};

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    output_index: Raw<'a>,
    #[serde(borrow)]
    summary_index: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
    #[serde(borrow)]
    item: Raw<'a>,
    #[serde(borrow)]
    response: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    call_id: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
}

/// A part of what was said.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    refusal: Raw<'a>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    output: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    incomplete_details: Raw<'a>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Report<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    input_tokens_details: Raw<'a>,
    #[serde(borrow)]
    output_tokens_details: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
}

/// Collects one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesReader {
    progress: Progress,
    said_any: bool,
    /// Whether the server says things as they come.
    has_deltas: bool,
    /// The last event of the answer has come.
    whole: bool,
}

impl AnswerReader for ResponsesReader {
    /// Events that are not known are passed over: there are many, and new ones come.
    fn take(&mut self, data: &[u8], each: Each<'_>) {
        if self.is_whole() {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            return self.progress.pass_over(data, each);
        };
        let Some(kind) = text(event.kind) else {
            // As servers say it that fail before they have begun.
            if event.error.is_some() {
                self.progress.fail(told_fault(event.error), each);
            }
            return;
        };
        let taken = match kind.as_str() {
            // The error stands in the event itself, or as a member of it.
            "error" => Err(told_fault(event.error.or_else(|| part(Some(whole(data)?))))),
            kind => self.take_event(kind, &event, each),
        };
        if let Err(fault) = taken {
            self.progress.fail(fault, each);
        }
    }

    fn is_whole(&self) -> bool {
        self.whole || self.progress.has_failed()
    }

    fn finish(&mut self, each: Each<'_>) {
        self.progress.finish(End::from(self.whole), each);
    }

    fn has_begun(&self) -> bool {
        self.progress.has_begun()
    }
}

fn whole(data: &[u8]) -> Option<&serde_json::value::RawValue> {
    serde_json::from_slice(data).ok()
}

impl ResponsesReader {
    fn take_event(&mut self, kind: &str, event: &Event<'_>, each: Each<'_>) -> Result<(), Fault> {
        match kind {
            "response.output_text.delta" => {
                self.has_deltas = true;
                self.say(event.delta, each);
            }
            "response.refusal.delta" => {
                self.has_deltas = true;
                self.refuse(event.delta, each);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                if let Some(thought) = text(event.delta) {
                    self.progress.think(thought, each);
                }
            }
            // Every part is a paragraph of its own.
            "response.reasoning_summary_part.added" if part(event.summary_index) > Some(0_u64) => {
                self.progress.think("\n\n".to_owned(), each);
            }
            "response.function_call_arguments.delta" => {
                let more = more_arguments(event.delta)?;
                grow(self.progress.call((place(event), 0))?, "", &more)?;
            }
            "response.function_call_arguments.done" => {
                self.settle_arguments(place(event), event.arguments)?;
            }
            "response.output_item.added" => self.take_call(place(event), event.item)?,
            "response.output_item.done" => {
                self.take_call(place(event), event.item)?;
                // Some servers say nothing before it is whole.
                if !self.has_deltas {
                    self.take_message(event.item, each);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.end(kind, event.response, each);
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, delta: Raw<'_>, each: Each<'_>) {
        if let Some(text) = text(delta) {
            self.said_any = true;
            self.progress.say(text, each);
        }
    }

    fn refuse(&mut self, delta: Raw<'_>, each: Each<'_>) {
        if text(delta).is_some() {
            self.say(delta, each);
            self.progress.stopped(StopReason::Filtered);
        }
    }

    /// A call as it begins or as it ends: what is said last counts.
    fn take_call(&mut self, place: u64, item: Raw<'_>) -> Result<(), Fault> {
        let Some(item) = piece::<Item<'_>>(item)? else { return Ok(()) };
        if text(item.kind).as_deref() != Some("function_call") {
            return Ok(());
        }
        let call = self.progress.call((place, 0))?;
        if let Some(id) = text(item.call_id) {
            call.id = id;
        }
        if let Some(name) = piece::<String>(item.name)?.filter(|name| !name.is_empty()) {
            call.name.clear();
            grow(call, &name, "")?;
        }
        self.settle_arguments(place, item.arguments)
    }

    fn settle_arguments(&mut self, place: u64, arguments: Raw<'_>) -> Result<(), Fault> {
        let arguments = more_arguments(arguments)?;
        if arguments.is_empty() {
            return Ok(());
        }
        let call = self.progress.call((place, 0))?;
        call.arguments.clear();
        grow(call, "", &arguments)
    }

    fn end(&mut self, kind: &str, response: Raw<'_>, each: Each<'_>) -> Result<(), Fault> {
        let response = part::<Response<'_>>(response);
        if kind == "response.failed" {
            return Err(told_fault(response.and_then(|response| response.error)));
        }
        self.progress.stopped(StopReason::Finished);
        if let Some(response) = response {
            if let Some(report) = part(response.usage) {
                self.progress.used(usage(&report));
            }
            self.take_rest(response.output, each)?;
            if kind == "response.incomplete" {
                self.progress.stopped(incomplete(response.incomplete_details));
            }
        } else if kind == "response.incomplete" {
            self.progress.stopped(StopReason::Length);
        }
        self.whole = true;
        self.progress.hand_on_calls(each);
        Ok(())
    }

    /// What was in no event before.
    fn take_rest(&mut self, output: Raw<'_>, each: Each<'_>) -> Result<(), Fault> {
        let (said_any, had_calls) = (self.said_any, self.progress.has_calls());
        let items = part::<Vec<Raw<'_>>>(output).into_iter().flatten();
        for (item, place) in items.zip(0_u64..) {
            if !had_calls {
                self.take_call(place, item)?;
            }
            if !said_any {
                self.take_message(item, each);
            }
        }
        Ok(())
    }

    /// What a whole message says.
    fn take_message(&mut self, item: Raw<'_>, each: Each<'_>) {
        let message = part::<Item<'_>>(item).filter(|item| text(item.kind).as_deref() == Some("message"));
        let content = message.and_then(|item| item.content);
        for said in part::<Vec<Raw<'_>>>(content).into_iter().flatten() {
            if let Some(said) = part::<Part<'_>>(said) {
                self.say(said.text, each);
                self.refuse(said.refusal, each);
            }
        }
    }
}

fn place(event: &Event<'_>) -> u64 {
    part(event.output_index).unwrap_or(0)
}

fn incomplete(details: Raw<'_>) -> StopReason {
    let reason = part::<Incomplete<'_>>(details).and_then(|details| text(details.reason));
    if reason.as_deref() == Some("content_filter") { StopReason::Filtered } else { StopReason::Length }
}

fn usage(report: &Report<'_>) -> Usage {
    let details = |raw| part::<Details<'_>>(raw);
    let cached = details(report.input_tokens_details).and_then(|details| tokens(details.cached_tokens));
    let reasoning =
        details(report.output_tokens_details).and_then(|details| tokens(details.reasoning_tokens));
    Usage {
        input: tokens(report.input_tokens).unwrap_or(0),
        output: tokens(report.output_tokens).unwrap_or(0),
        cached: cached.unwrap_or(0),
        cache_written: 0,
        reasoning: reasoning.unwrap_or(0),
    }
}
