//! Plans the response to a request: selects the script, lists its actions, and encodes them as steps. Without I/O;
//! `response_body` and `server` execute the steps.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::encoder;
use super::request::{Api, BadRequest, ParsedRequest, ResponseMode};
use super::schema::sample;
use super::script::{Script, ScriptFault, ScriptedCall, injected_calls};

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";
const SIGN_IN_PAGE_HTML: &str = "<!doctype html><html><body><h1>Sign in to this network</h1></body></html>";

/// A planned response.
#[derive(Debug)]
pub(crate) struct PlannedResponse {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// The `Retry-After` header, in seconds.
    pub(crate) retry_after_s: Option<u64>,
    /// The waits before the response head is sent.
    pub(crate) waits_before_head: Vec<Wait>,
    pub(crate) body: BodyPlan,
}

/// A complete body, or a chunked one that is sent in steps.
#[derive(Debug)]
pub(crate) enum BodyPlan {
    Complete(Bytes),
    Steps(VecDeque<Step>),
}

/// One step of a chunked body.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Bytes),
    Wait(Wait),
    Disconnect,
}

/// A wait before or within a response.
#[derive(Debug)]
pub(crate) enum Wait {
    Pause(Duration),
    /// Until the test releases this name.
    Release(String),
    Forever,
    /// Until the bytes sent so far have left the process.
    Flush,
}

/// What the model does in a response, streamed or not.
enum ScriptAction {
    Text(String),
    Reasoning(String),
    Call(ScriptedCall),
    Wait(Wait),
    Disconnect,
}

impl PlannedResponse {
    /// Plans the response; `number` makes its ids unique, `response_for` returns the response that a test set for a
    /// prompt, `mark_deferred` marks a prompt and returns whether it was not marked before.
    pub(crate) fn for_request(
        request: &ParsedRequest,
        number: usize,
        follow_injections: bool,
        response_for: impl FnOnce(&str) -> Option<String>,
        mark_deferred: impl FnOnce(&str) -> bool,
    ) -> Self {
        let script = match select_script(request, follow_injections, response_for) {
            Ok(script) => script,
            Err(fault) => {
                let fault = BadRequest { message: fault.to_string(), param: None };
                return Self::bad_request(request.api, &fault);
            }
        };
        match fit_to_schema(request, script) {
            Script::Status { code, body } => Self::status(request.api, code, body),
            Script::Later { wait_s, .. } if mark_deferred(&request.last_user_message()) => {
                Self { retry_after_s: Some(wait_s), ..Self::status(request.api, 429, None) }
            }
            Script::Html => Self::complete(
                200,
                "text/html; charset=utf-8",
                Bytes::from_static(SIGN_IN_PAGE_HTML.as_bytes()),
            ),
            Script::Garbage => Self::garbage(request.response_mode),
            Script::Silent => {
                Self { waits_before_head: vec![Wait::Forever], ..Self::complete(200, JSON, Bytes::new()) }
            }
            script => Self::render(request, number, script_actions(request, script)),
        }
    }

    pub(crate) fn bad_request(api: Api, fault: &BadRequest) -> Self {
        Self::complete(
            400,
            JSON,
            encoder::error(api, "invalid_request_error", &fault.message, fault.param, None),
        )
    }

    pub(crate) fn unauthorized(api: Api) -> Self {
        let kind = match api {
            Api::Chat | Api::Responses => "invalid_request_error",
            Api::Anthropic => "authentication_error",
        };
        let message = "incorrect API key provided";
        Self::complete(401, JSON, encoder::error(api, kind, message, None, Some("invalid_api_key")))
    }

    pub(crate) fn not_found(method: &str, path: &str) -> Self {
        let message = format!("no such endpoint: {method} {path}");
        let body = encoder::error(Api::Chat, "invalid_request_error", &message, None, Some("unknown_url"));
        Self::complete(404, JSON, body)
    }

    fn status(api: Api, code: u16, body: Option<String>) -> Self {
        let Some(body) = body else {
            let kind = if code < 500 { "invalid_request_error" } else { "server_error" };
            let body = encoder::error(api, kind, &format!("scripted status {code}"), None, None);
            return Self::complete(code, JSON, body);
        };
        let content_type = if body.starts_with('{') { JSON } else { "text/plain; charset=utf-8" };
        Self::complete(code, content_type, Bytes::from(body))
    }

    fn garbage(mode: ResponseMode) -> Self {
        if mode == ResponseMode::Complete {
            return Self::complete(200, JSON, Bytes::from_static(b"{\"id\": \"chatcmpl-"));
        }
        let events = "data: {\"id\": \"chatcmpl-\n\ndata: not json either\n\ndata: [DONE]\n\n";
        Self::from_steps([Step::Send(Bytes::from_static(events.as_bytes()))].into())
    }

    fn render(request: &ParsedRequest, number: usize, actions: Vec<ScriptAction>) -> Self {
        match request.response_mode {
            ResponseMode::Complete => Self::render_complete(request, number, actions),
            ResponseMode::Streamed | ResponseMode::StreamedWithUsage => {
                Self::render_stream(request, number, actions)
            }
        }
    }

    /// Encodes a stream. The actions between two waits become one frame, so that a response without waits is one write.
    fn render_stream(request: &ParsedRequest, number: usize, actions: Vec<ScriptAction>) -> Self {
        let mut encoder = encoder::start_stream(request, number);
        let mut steps = VecDeque::new();
        for action in actions {
            match action {
                // Real models do not send empty deltas.
                ScriptAction::Text(text) if text.is_empty() => {}
                ScriptAction::Text(text) => encoder.push_text(&text),
                ScriptAction::Reasoning(thought) => encoder.push_reasoning(&thought),
                ScriptAction::Call(call) => encoder.push_call(&call),
                ScriptAction::Wait(wait) => {
                    steps.extend([Step::Send(encoder.take_frame()), Step::Wait(wait)]);
                }
                ScriptAction::Disconnect => {
                    steps.extend([
                        Step::Send(encoder.take_frame()),
                        Step::Wait(Wait::Flush),
                        Step::Disconnect,
                    ]);
                    return Self::from_steps(steps);
                }
            }
        }
        steps.push_back(Step::Send(encoder.finish()));
        Self::from_steps(steps)
    }

    /// Encodes a response without streaming: all waits come before the head.
    fn render_complete(request: &ParsedRequest, number: usize, actions: Vec<ScriptAction>) -> Self {
        let (mut text, mut calls, mut waits) = (String::new(), Vec::new(), Vec::new());
        for action in actions {
            match action {
                ScriptAction::Text(chunk) => text.push_str(&chunk),
                // Reasoning is part of streams only.
                ScriptAction::Reasoning(_) => {}
                ScriptAction::Call(call) => calls.push(call),
                ScriptAction::Wait(wait) => waits.push(wait),
                ScriptAction::Disconnect => {
                    let complete = encoder::completion(request, number, &text, &calls);
                    let half = complete.slice(..complete.len() / 2);
                    let steps = [Step::Send(half), Step::Wait(Wait::Flush), Step::Disconnect].into();
                    return Self { content_type: JSON, ..Self::from_steps(steps) };
                }
            }
        }
        Self {
            waits_before_head: waits,
            ..Self::complete(200, JSON, encoder::completion(request, number, &text, &calls))
        }
    }

    fn complete(status: u16, content_type: &'static str, body: Bytes) -> Self {
        let body = BodyPlan::Complete(body);
        Self { status, content_type, retry_after_s: None, waits_before_head: Vec::new(), body }
    }

    fn from_steps(steps: VecDeque<Step>) -> Self {
        Self {
            content_type: EVENT_STREAM,
            body: BodyPlan::Steps(steps),
            ..Self::complete(200, JSON, Bytes::new())
        }
    }
}

/// The actions of a script; none for scripts that stream no content.
fn script_actions(request: &ParsedRequest, script: Script) -> Vec<ScriptAction> {
    match script {
        Script::Status { .. } | Script::Html | Script::Garbage | Script::Silent | Script::Empty => Vec::new(),
        Script::Reply { text } | Script::Later { text, .. } => vec![ScriptAction::Text(text)],
        Script::Echo { text } => vec![ScriptAction::Text(format!("echo: {text}"))],
        Script::History => vec![ScriptAction::Text(history(request))],
        Script::Chunks { count, text } => encoder::split_evenly(&text, count)
            .into_iter()
            .map(|chunk| ScriptAction::Text(chunk.to_owned()))
            .collect(),
        Script::Stall { text } => vec![ScriptAction::Text(text), ScriptAction::Wait(Wait::Forever)],
        Script::Cut { text } => vec![ScriptAction::Text(text), ScriptAction::Disconnect],
        Script::Slow { pause_ms, text } => slow_actions(pause_ms, &text),
        Script::Hold { name, text } => {
            let end = ScriptAction::Text(format!(" released {name}"));
            vec![ScriptAction::Text(text), ScriptAction::Wait(Wait::Release(name)), end]
        }
        Script::Think { thought, rest } => {
            let mut actions = vec![ScriptAction::Reasoning(thought)];
            actions.extend(script_actions(request, *rest));
            actions
        }
        Script::Tools { calls } | Script::Insist { calls } => {
            calls.into_iter().map(ScriptAction::Call).collect()
        }
    }
}

fn select_script(
    request: &ParsedRequest,
    follow_injections: bool,
    response_for: impl FnOnce(&str) -> Option<String>,
) -> Result<Script, ScriptFault> {
    let prompt = request.last_user_message();
    if let Some(conversation) = summary_input(&prompt) {
        return Ok(summary_script(conversation));
    }
    let tool_results = request.trailing_tool_results();
    if tool_results.is_none()
        && let Some(text) = response_for(&prompt)
    {
        return Ok(Script::Reply { text });
    }
    if follow_injections {
        let calls: Vec<_> =
            request.messages_since_response().flat_map(|text| injected_calls(&text)).collect();
        if !calls.is_empty() {
            return Ok(Script::Tools { calls });
        }
    }
    let script = Script::parse(&prompt);
    match (tool_results, script) {
        (Some(_), Ok(insisting @ Script::Insist { .. })) => Ok(insisting),
        (Some(results), _) => Ok(Script::Reply { text: format!("tool said: {results}") }),
        // Tests of injections send arbitrary text, so an invalid command is echoed and not rejected.
        (None, Err(_)) if follow_injections => Ok(Script::Echo { text: prompt.into_owned() }),
        (None, script) => script,
    }
}

/// The conversation to summarize, if the prompt is the daemon's request for a summary.
fn summary_input(prompt: &str) -> Option<&str> {
    prompt
        .strip_suffix("\n</conversation>")?
        .split_once("\n<conversation>\n")
        .map(|(_, conversation)| conversation)
}

/// A summary of constant length; status 400 if the conversation contains `!nosummary`.
fn summary_script(conversation: &str) -> Script {
    if conversation.contains("!nosummary") {
        return Script::Status { code: 400, body: None };
    }
    Script::Reply { text: format!("Summed up: {} words.", conversation.split_whitespace().count()) }
}

/// Makes a text fit the requested schema, unless it is JSON already: then a test wants exactly that response.
fn fit_to_schema(request: &ParsedRequest, script: Script) -> Script {
    let Some(schema) = &request.schema else { return script };
    match script {
        Script::Reply { text } | Script::Echo { text } => match serde_json::from_str::<Value>(&text) {
            Ok(_) => Script::Reply { text },
            Err(_) => Script::Reply { text: sample(schema, &text).to_string() },
        },
        Script::Think { thought, rest } => {
            Script::Think { thought, rest: Box::new(fit_to_schema(request, *rest)) }
        }
        script => script,
    }
}

fn history(request: &ParsedRequest) -> String {
    request.user_messages().collect::<Vec<_>>().join(" | ")
}

fn slow_actions(pause_ms: u64, text: &str) -> Vec<ScriptAction> {
    let mut actions = Vec::new();
    for word in text.split_inclusive(' ') {
        if !actions.is_empty() {
            actions.push(ScriptAction::Wait(Wait::Pause(Duration::from_millis(pause_ms))));
        }
        actions.push(ScriptAction::Text(word.to_owned()));
    }
    actions
}
