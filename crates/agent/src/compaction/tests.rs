//! What is summarized, what is dropped, and what is always retained.

use testkit::TestRng;

use super::*;
use crate::outside::{ModelSpec, ModelTier};
use crate::tokens::{CountedMessage, estimate_tokens};
use crate::{FixedOverhead, Image, MessageSource, TokenCalibration, ToolCall, ToolOutcome, Window};

fn window(messages: impl IntoIterator<Item = Message>) -> Window {
    let mut window = Window::new(Some("the prompt"), &estimate_tokens);
    messages.into_iter().for_each(|message| window.push(CountedMessage::new(message, &estimate_tokens)));
    window
}

fn user(text: impl Into<String>) -> Message {
    Message::user(text, MessageSource::default())
}

fn response(text: impl Into<String>) -> Message {
    Message::assistant(text, Vec::new())
}

/// A tool call and its result.
fn call_with_result(id: &str, output: impl Into<String>) -> [Message; 2] {
    let call = ToolCall { id: id.to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() };
    [Message::assistant("", vec![call]), Message::tool_result(id, &ToolOutcome::Done(output.into()))]
}

/// A text of a hundred tokens; its message has four more.
fn long_text(label: &str) -> String {
    format!("{label}{}", "x".repeat(400 - label.len()))
}

fn conversation(turns: usize) -> Vec<Message> {
    (0..turns)
        .flat_map(|turn| [user(long_text(&format!("q{turn} "))), response(long_text(&format!("a{turn} ")))])
        .collect()
}

fn plan(window: &Window, budget: TokenCount, trigger: CompactionTrigger) -> Option<SummaryPlan> {
    let size = window.size(&FixedOverhead { budget, ..FixedOverhead::default() });
    SummaryPlan::plan(window, &size, TokenCalibration::default(), trigger)
}

fn text_prefixes(window: &Window) -> Vec<String> {
    let start = |message: &Arc<Message>| message.text.chars().take(3).collect();
    window.messages().iter().map(start).collect()
}

#[test]
fn newest_messages_stay_and_older_ones_are_summarized() {
    let full = window(conversation(10));
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("enough to summarize");
    let parts = summary.apply_response("  all was said  ", &estimate_tokens).expect("shorter");
    let compacted = full.compacted(&parts, &estimate_tokens);
    // A quarter of the 3,000 available tokens is seven messages; the newest user message is among them.
    assert_eq!(text_prefixes(&compacted), ["[Su", "a6 ", "q7 ", "a7 ", "q8 ", "a8 ", "q9 ", "a9 "]);
    let head = "[Summary of the earlier conversation: 13 messages]\n\nall was said";
    assert_eq!(compacted.messages()[0].text, head);
    assert_eq!(compacted.system(), full.system(), "the system prompt is unchanged");
    let recounted = compacted.messages().iter().map(|message| Message::clone(message));
    assert_eq!(window(recounted).message_tokens(), compacted.message_tokens(), "equal to a fresh count");
}

#[test]
fn call_and_results_are_not_separated() {
    let mut messages = conversation(8);
    messages.extend(call_with_result("c1", long_text("out")));
    let full = window(messages);
    for budget in (400..8000).step_by(100) {
        let Some(summary) = plan(&full, budget, CompactionTrigger::WindowFull) else { continue };
        let parts = summary.apply_response("s", &estimate_tokens).expect("shorter");
        let compacted = full.compacted(&parts, &estimate_tokens);
        let first = &compacted.messages()[1];
        assert!(first.role != Role::Tool, "{budget}: {first:?}");
    }
}

#[test]
fn newest_user_message_and_pinned_messages_are_retained() {
    let mut messages = vec![user("[pinned] never push to main"), response(long_text("a"))];
    messages.push(user("find the bug"));
    for call in 0..20 {
        messages.extend(call_with_result(&format!("c{call}"), long_text("output")));
    }
    let full = window(messages);
    let parts = plan(&full, 2000, CompactionTrigger::WindowFull)
        .and_then(|summary| summary.apply_response("s", &estimate_tokens));
    let compacted = full.compacted(&parts.expect("a compaction"), &estimate_tokens);
    assert_eq!(text_prefixes(&compacted)[..3], ["[Su", "[pi", "fin"]);
    let dropped = drop_oldest(&full, 300, &estimate_tokens).expect("can be shortened");
    let compacted = full.compacted(&dropped, &estimate_tokens);
    assert_eq!(text_prefixes(&compacted)[..3], ["[Ea", "[pi", "fin"]);
    assert!(compacted.message_tokens() <= 300, "{}", compacted.message_tokens());
}

#[test]
fn short_or_already_summarized_context_is_not_compacted() {
    assert!(plan(&window([]), 4000, CompactionTrigger::Requested).is_none());
    assert!(plan(&window([user("hi")]), 4000, CompactionTrigger::Requested).is_none());
    assert!(plan(&window([user("hi"), response("hello")]), 4000, CompactionTrigger::Requested).is_none());
    let full = window(conversation(10));
    assert!(plan(&full, 100_000, CompactionTrigger::WindowFull).is_none(), "all messages are recent");
    let parts = plan(&full, 100_000, CompactionTrigger::Requested)
        .and_then(|summary| summary.apply_response("s", &estimate_tokens));
    let compacted = full.compacted(&parts.expect("requested"), &estimate_tokens);
    let mut only_summary = compacted;
    only_summary.truncate(2);
    assert!(
        plan(&only_summary, 100_000, CompactionTrigger::Requested).is_none(),
        "a summary alone is not summarized again"
    );
}

#[test]
fn empty_summary_is_rejected_and_a_long_one_truncated() {
    let full = window(conversation(10));
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("enough to summarize");
    for text in ["", " \n "] {
        assert_eq!(summary.apply_response(text, &estimate_tokens), None);
    }
    let long = summary.apply_response(&"word ".repeat(1000), &estimate_tokens).expect("a summary");
    let CompactionPart::Inserted(message) = &long[0] else { panic!("the summary comes first") };
    assert!(
        message.text.contains("bytes left out") && estimate_tokens(&message.text) < 480,
        "{}",
        message.text
    );
    let secret = summary
        .apply_response("the key is sk-aaaaaaaaaaaaaaaaaaaaaaaa", &estimate_tokens)
        .expect("a summary");
    let CompactionPart::Inserted(message) = &secret[0] else { panic!("the summary comes first") };
    assert!(message.text.ends_with("the key is [redacted]"));
}

#[test]
fn summary_request_fits_and_contains_no_secret() {
    let mut messages = vec![user("my key is sk-aaaaaaaaaaaaaaaaaaaaaaaa")];
    for call in 0..200 {
        messages.extend(call_with_result(&format!("c{call}"), "line\n".repeat(2000)));
    }
    messages.extend(conversation(2));
    let full = window(messages);
    for budget in [2_000, 8_000, 32_000, 400_000] {
        let summary = plan(&full, budget, CompactionTrigger::WindowFull).expect("enough to summarize");
        let request = summary.request(&ModelSpec::with_window(budget), &estimate_tokens);
        let text = &request.messages[0].text;
        assert!(estimate_tokens(text) <= budget * 3 / 4, "{budget}: {}", estimate_tokens(text));
        assert!(!text.contains("sk-aaa") && request.tools.is_empty());
        let response_max = request.answer_tokens_max.expect("a limit");
        assert!(
            response_max >= summary.tokens_max() && estimate_tokens(text) + response_max <= budget,
            "{budget}"
        );
        assert!(summary.tokens_max() <= 2000 && summary.tokens_max() <= budget / 10);
        assert!(text.contains("-> read({})"), "{budget}");
    }
}

#[test]
fn response_limit_includes_tokens_for_reasoning() {
    let full = window(conversation(400));
    let summary = plan(&full, 50_000, CompactionTrigger::WindowFull).expect("enough to summarize");
    let limit = |spec| summary.request(&spec, &estimate_tokens).answer_tokens_max.expect("a limit");
    let spec = ModelSpec::with_window(50_000);
    assert_eq!((summary.tokens_max(), limit(spec.clone())), (2000, 10_000));
    assert_eq!(limit(ModelSpec { answer_tokens_max: Some(4096), ..spec }), 4096);
    assert_eq!(limit(ModelSpec { answer_tokens_max: Some(1), ..spec }), 2000);
    assert_eq!(limit(ModelSpec { tier: ModelTier::Small, ..spec }), 2000);
    let size = full.size(&FixedOverhead {
        budget: 20_000,
        calibration: TokenCalibration::from_permille(Some(800)),
        ..FixedOverhead::default()
    });
    let summary = SummaryPlan::plan(
        &full,
        &size,
        TokenCalibration::from_permille(Some(800)),
        CompactionTrigger::WindowFull,
    )
    .expect("enough to summarize");
    let request = summary.request(&spec, &estimate_tokens);
    let request_tokens = estimate_tokens(&request.messages[0].text) * 4 / 5;
    assert!(
        request.answer_tokens_max.is_some_and(|limit| request_tokens + limit <= 20_000),
        "in the model's tokens"
    );
}

/// A summary in the format of older versions, with the time.
fn old_summary(words: &str) -> Message {
    user(format!("{SUMMARY_PREFIX}: 30 messages, 2024-01-15 10:30 UTC]\n\n{words}"))
}

#[test]
fn earlier_summary_stays_in_a_truncated_transcript() {
    let full = window([vec![old_summary("never push to main")], conversation(100)].concat());
    let summary = plan(&full, 2000, CompactionTrigger::WindowFull).expect("enough to summarize");
    let text = summary.request(&ModelSpec::with_window(2000), &estimate_tokens).messages[0].text.clone();
    assert!(text.contains("never push to main"), "{text}");
    assert!(text.contains(" earlier messages left out]\n"), "{text}");
    assert!(estimate_tokens(&text) <= 1200, "{}", estimate_tokens(&text));
}

#[test]
fn last_summary_is_truncated_rather_than_dropped() {
    let full = window([vec![old_summary(&"word ".repeat(400))], conversation(10)].concat());
    for tokens_max in [300, 1000, 1500] {
        let parts = drop_oldest(&full, tokens_max, &estimate_tokens).expect("can be shortened");
        let compacted = full.compacted(&parts, &estimate_tokens);
        assert!(compacted.messages().iter().any(|message| is_summary(message)), "{tokens_max}");
        assert!(compacted.message_tokens() <= tokens_max, "{tokens_max}: {}", compacted.message_tokens());
    }
}

#[test]
fn notes_and_summaries_add_up_represented_messages() {
    let mut full = window(conversation(10));
    let mut dropped_counts = Vec::new();
    for _ in 0..3 {
        let parts =
            drop_oldest(&full, full.message_tokens() * 2 / 3, &estimate_tokens).expect("can be shortened");
        full = full.compacted(&parts, &estimate_tokens);
        dropped_counts.push(20 - (full.messages().len() - 1));
        let head =
            format!("{DROP_NOTE_PREFIX} to make room: {}. ", dropped_counts.last().expect("just pushed"));
        assert!(full.messages()[0].text.starts_with(&head), "{head}: {}", full.messages()[0].text);
    }
    assert!(dropped_counts.is_sorted() && dropped_counts[0] < dropped_counts[2], "{dropped_counts:?}");
    let full = window([vec![old_summary(&"word ".repeat(400))], conversation(10)].concat());
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("enough to summarize");
    let parts = summary.apply_response("notes", &estimate_tokens).expect("shorter");
    let head = full.compacted(&parts, &estimate_tokens).messages()[0].text.clone();
    let retained = full.compacted(&parts, &estimate_tokens).messages().len() - 1;
    assert_eq!(head, format!("{SUMMARY_PREFIX}: {} messages]\n\nnotes", 30 + 20 - retained));
    let forged = user(format!("{DROP_NOTE_PREFIX} {}]", u64::MAX));
    assert_eq!(represented_messages(&forged), 1, "an absurd number is ignored");
}

#[test]
fn summary_reports_pinned_messages_that_did_not_fit() {
    let pins =
        [user(format!("{PINNED_PREFIX} {}", "long ".repeat(800))), user(format!("{PINNED_PREFIX} short"))];
    let full = window([pins.to_vec(), conversation(10)].concat());
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("enough to summarize");
    let parts = summary.apply_response("notes", &estimate_tokens).expect("shorter");
    let compacted = full.compacted(&parts, &estimate_tokens);
    assert!(compacted.messages()[0].text.contains(" messages, 1 of them pinned but too long to stay]"));
    assert_eq!(compacted.messages()[1].text, format!("{PINNED_PREFIX} short"));
}

#[test]
fn old_outputs_are_dropped_before_messages() {
    let mut messages = vec![user("go")];
    messages.extend(call_with_result("c1", long_text("one")));
    messages.extend(call_with_result("c2", long_text("two")));
    messages.extend(call_with_result("c3", long_text("three")));
    let full = window(messages);
    let parts = drop_oldest(&full, full.message_tokens() - 60, &estimate_tokens).expect("can be shortened");
    let compacted = full.compacted(&parts, &estimate_tokens);
    let outputs: Vec<_> = compacted.messages().iter().filter(|message| message.role == Role::Tool).collect();
    assert_eq!(outputs[0].text, "[output dropped to make room: 104 tokens]");
    assert_eq!(
        (outputs[0].tool_call_id.as_deref(), outputs[1].text.as_str()),
        (Some("c1"), &*long_text("two"))
    );
    assert_eq!(compacted.messages().len(), full.messages().len());
}

#[test]
fn giant_last_message_is_truncated_in_the_middle() {
    let giant = format!("first {} last", "x".repeat(1_000_000));
    for before in [Vec::new(), conversation(3)] {
        let mut messages = before;
        messages.push(user(giant.clone()));
        let full = window(messages);
        let compacted = full.compacted(
            &drop_oldest(&full, 1000, &estimate_tokens).expect("can be shortened"),
            &estimate_tokens,
        );
        let last = compacted.messages().last().expect("exists");
        assert!(last.text.starts_with("first ") && last.text.ends_with(" last"));
        assert!(compacted.message_tokens() <= 1000, "{}", compacted.message_tokens());
    }
}

#[test]
fn giant_arguments_and_images_are_omitted() {
    let arguments = format!("{{\"content\":\"{}\"}}", "x".repeat(100_000));
    let call = ToolCall { id: "c".to_owned(), name: "write".to_owned(), arguments };
    let image = Image { media_type: "image/png".to_owned(), data: Arc::from([0; 8]) };
    let with_images = Message { images: vec![image; 3], ..user("look") };
    let result = Message::tool_result("c", &ToolOutcome::Done("done".to_owned()));
    let full = window([with_images, Message::assistant("", vec![call]), result]);
    let compacted = full
        .compacted(&drop_oldest(&full, 300, &estimate_tokens).expect("can be shortened"), &estimate_tokens);
    assert!(compacted.message_tokens() <= 300, "{}", compacted.message_tokens());
    assert_eq!(compacted.messages()[1].tool_calls[0].arguments, "{\"left_out_bytes\":100014}");
    assert_eq!(compacted.messages()[0].text, "look\n[3 pictures left out]");
}

#[test]
fn drop_plan_stays_within_its_limit_and_retains_results() {
    let mut rng = TestRng::new(7);
    for case in 0..300 {
        let mut messages = Vec::new();
        for turn in 0..1 + rng.below(12) {
            messages.push(user("q".repeat(rng.below(3000))));
            for call in 0..rng.below(4) {
                let size = rng.below(6000);
                messages.extend(call_with_result(&format!("c{turn}-{call}"), "o".repeat(size)));
            }
            messages.push(response("a".repeat(rng.below(3000))));
        }
        let full = window(messages);
        let tokens_max = 200 + rng.below(2000) as u64;
        let Some(parts) = drop_oldest(&full, tokens_max, &estimate_tokens) else {
            assert!(full.message_tokens() <= tokens_max, "{case}: nothing was dropped");
            continue;
        };
        let compacted = full.compacted(&parts, &estimate_tokens);
        assert!(
            compacted.message_tokens() <= tokens_max.max(48 * compacted.messages().len() as u64),
            "{case}"
        );
        let mut calls: Vec<&str> = Vec::new();
        for message in compacted.messages() {
            match &message.tool_call_id {
                Some(id) => assert_eq!(calls.pop(), Some(id.as_str()), "{case}"),
                None => assert!(calls.is_empty(), "{case}: a call without a result"),
            }
            calls.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        }
        let record = CompactionRecord {
            turn: None,
            by: PrincipalId::Auto,
            method: CompactionMethod::Dropped,
            messages_before: full.messages().len(),
            tokens_before: 0,
            tokens_after: 0,
            parts,
        };
        assert_eq!(record.apply(full.messages()), compacted.messages(), "{case}");
        assert_eq!(record.messages_after(), compacted.messages().len(), "{case}");
    }
}
