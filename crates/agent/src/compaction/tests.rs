//! What is summed up, what is dropped, and what stays in any case.

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

fn answer(text: impl Into<String>) -> Message {
    Message::assistant(text, Vec::new())
}

/// A call and its result.
fn call_with_result(id: &str, output: impl Into<String>) -> [Message; 2] {
    let call = ToolCall { id: id.to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() };
    [Message::assistant("", vec![call]), Message::tool_result(id, &ToolOutcome::Done(output.into()))]
}

/// A hundred tokens, and four around them.
fn long_text(label: &str) -> String {
    format!("{label}{}", "x".repeat(400 - label.len()))
}

fn conversation(turns: usize) -> Vec<Message> {
    (0..turns)
        .flat_map(|turn| [user(long_text(&format!("q{turn} "))), answer(long_text(&format!("a{turn} ")))])
        .collect()
}

fn plan(window: &Window, budget: TokenCount, want: CompactionTrigger) -> Option<SummaryPlan> {
    let size = window.size(&FixedOverhead { budget, ..FixedOverhead::default() });
    SummaryPlan::plan(window, &size, TokenCalibration::default(), want)
}

fn text_prefixes(window: &Window) -> Vec<String> {
    let start = |message: &Arc<Message>| message.text.chars().take(3).collect();
    window.messages().iter().map(start).collect()
}

#[test]
fn the_newest_messages_stay_and_the_rest_is_summed_up() {
    let full = window(conversation(10));
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("there is enough");
    let parts = summary.apply_response("  all was said  ", &estimate_tokens).expect("it is shorter");
    let folded = full.compacted(&parts, &estimate_tokens);
    // A quarter of the 3,000 available is seven messages; what was asked last is among them.
    assert_eq!(text_prefixes(&folded), ["[Su", "a6 ", "q7 ", "a7 ", "q8 ", "a8 ", "q9 ", "a9 "]);
    let head = "[Summary of the earlier conversation: 13 messages]\n\nall was said";
    assert_eq!(folded.messages()[0].text, head);
    assert_eq!(folded.system(), full.system(), "the prompt is not touched");
    let again = folded.messages().iter().map(|message| Message::clone(message));
    assert_eq!(window(again).message_tokens(), folded.message_tokens(), "the count is that of a fresh one");
}

#[test]
fn a_call_stays_with_its_results() {
    let mut messages = conversation(8);
    messages.extend(call_with_result("c1", long_text("out")));
    let full = window(messages);
    for budget in (400..8000).step_by(100) {
        let Some(summary) = plan(&full, budget, CompactionTrigger::WindowFull) else { continue };
        let parts = summary.apply_response("s", &estimate_tokens).expect("it is shorter");
        let folded = full.compacted(&parts, &estimate_tokens);
        let first = &folded.messages()[1];
        assert!(first.role != Role::Tool, "{budget}: {first:?}");
    }
}

#[test]
fn what_was_asked_and_what_is_pinned_stay() {
    let mut messages = vec![user("[pinned] never push to main"), answer(long_text("a"))];
    messages.push(user("find the bug"));
    for call in 0..20 {
        messages.extend(call_with_result(&format!("c{call}"), long_text("output")));
    }
    let full = window(messages);
    let parts = plan(&full, 2000, CompactionTrigger::WindowFull)
        .and_then(|summary| summary.apply_response("s", &estimate_tokens));
    let folded = full.compacted(&parts.expect("a fold"), &estimate_tokens);
    assert_eq!(text_prefixes(&folded)[..3], ["[Su", "[pi", "fin"]);
    let dropped = drop_oldest(&full, 300, &estimate_tokens).expect("something can go");
    let folded = full.compacted(&dropped, &estimate_tokens);
    assert_eq!(text_prefixes(&folded)[..3], ["[Ea", "[pi", "fin"]);
    assert!(folded.message_tokens() <= 300, "{}", folded.message_tokens());
}

#[test]
fn what_is_short_or_was_summed_up_before_is_left_alone() {
    assert!(plan(&window([]), 4000, CompactionTrigger::Requested).is_none());
    assert!(plan(&window([user("hi")]), 4000, CompactionTrigger::Requested).is_none());
    assert!(plan(&window([user("hi"), answer("hello")]), 4000, CompactionTrigger::Requested).is_none());
    let full = window(conversation(10));
    assert!(plan(&full, 100_000, CompactionTrigger::WindowFull).is_none(), "it is all within what stays");
    let parts = plan(&full, 100_000, CompactionTrigger::Requested)
        .and_then(|summary| summary.apply_response("s", &estimate_tokens));
    let folded = full.compacted(&parts.expect("somebody asks"), &estimate_tokens);
    let mut only_summary = folded;
    only_summary.truncate(2);
    assert!(
        plan(&only_summary, 100_000, CompactionTrigger::Requested).is_none(),
        "a summary is not summed up alone"
    );
}

#[test]
fn an_answer_that_is_no_summary_is_refused() {
    let full = window(conversation(10));
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("there is enough");
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
fn what_the_model_is_asked_fits_and_holds_no_secret() {
    let mut messages = vec![user("my key is sk-aaaaaaaaaaaaaaaaaaaaaaaa")];
    for call in 0..200 {
        messages.extend(call_with_result(&format!("c{call}"), "line\n".repeat(2000)));
    }
    messages.extend(conversation(2));
    let full = window(messages);
    for budget in [2_000, 8_000, 32_000, 400_000] {
        let summary = plan(&full, budget, CompactionTrigger::WindowFull).expect("there is enough");
        let question = summary.request(&ModelSpec::with_window(budget), &estimate_tokens);
        let text = &question.messages[0].text;
        assert!(estimate_tokens(text) <= budget * 3 / 4, "{budget}: {}", estimate_tokens(text));
        assert!(!text.contains("sk-aaa") && question.tools.is_empty());
        let answer_max = question.answer_tokens_max.expect("it is bounded");
        assert!(
            answer_max >= summary.tokens_max() && estimate_tokens(text) + answer_max <= budget,
            "{budget}"
        );
        assert!(summary.tokens_max() <= 2000 && summary.tokens_max() <= budget / 10);
        assert!(text.contains("-> read({})"), "{budget}");
    }
}

#[test]
fn a_model_may_think_before_it_sums_up() {
    let full = window(conversation(400));
    let summary = plan(&full, 50_000, CompactionTrigger::WindowFull).expect("there is enough");
    let most = |traits| summary.request(&traits, &estimate_tokens).answer_tokens_max.expect("it is bounded");
    let usual = ModelSpec::with_window(50_000);
    assert_eq!((summary.tokens_max(), most(usual.clone())), (2000, 10_000));
    assert_eq!(most(ModelSpec { answer_tokens_max: Some(4096), ..usual }), 4096);
    assert_eq!(most(ModelSpec { answer_tokens_max: Some(1), ..usual }), 2000);
    assert_eq!(most(ModelSpec { tier: ModelTier::Small, ..usual }), 2000);
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
    .expect("there is enough");
    let question = summary.request(&usual, &estimate_tokens);
    let asked = estimate_tokens(&question.messages[0].text) * 4 / 5;
    assert!(question.answer_tokens_max.is_some_and(|most| asked + most <= 20_000), "as the model counts");
}

/// As older versions kept it, with the time.
fn old_summary(words: &str) -> Message {
    user(format!("{SUMMARY_PREFIX}: 30 messages, 2024-01-15 10:30 UTC]\n\n{words}"))
}

#[test]
fn an_earlier_summary_is_summed_up_again_however_little_room_there_is() {
    let full = window([vec![old_summary("never push to main")], conversation(100)].concat());
    let summary = plan(&full, 2000, CompactionTrigger::WindowFull).expect("there is enough");
    let text = summary.request(&ModelSpec::with_window(2000), &estimate_tokens).messages[0].text.clone();
    assert!(text.contains("never push to main"), "{text}");
    assert!(text.contains(" earlier messages left out]\n"), "{text}");
    assert!(estimate_tokens(&text) <= 1200, "{}", estimate_tokens(&text));
}

#[test]
fn the_last_summary_is_not_dropped_but_may_be_cut() {
    let full = window([vec![old_summary(&"word ".repeat(400))], conversation(10)].concat());
    for tokens_max in [300, 1000, 1500] {
        let parts = drop_oldest(&full, tokens_max, &estimate_tokens).expect("something can go");
        let folded = full.compacted(&parts, &estimate_tokens);
        assert!(folded.messages().iter().any(|message| is_summary(message)), "{tokens_max}");
        assert!(folded.message_tokens() <= tokens_max, "{tokens_max}: {}", folded.message_tokens());
    }
}

#[test]
fn notes_and_summaries_count_what_earlier_ones_stood_for() {
    let mut full = window(conversation(10));
    let mut told = Vec::new();
    for _ in 0..3 {
        let parts =
            drop_oldest(&full, full.message_tokens() * 2 / 3, &estimate_tokens).expect("something can go");
        full = full.compacted(&parts, &estimate_tokens);
        told.push(20 - (full.messages().len() - 1));
        let head = format!("{DROP_NOTE_PREFIX} to make room: {}. ", told.last().expect("just put there"));
        assert!(full.messages()[0].text.starts_with(&head), "{head}: {}", full.messages()[0].text);
    }
    assert!(told.is_sorted() && told[0] < told[2], "{told:?}");
    let full = window([vec![old_summary(&"word ".repeat(400))], conversation(10)].concat());
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("there is enough");
    let parts = summary.apply_response("notes", &estimate_tokens).expect("it is shorter");
    let head = full.compacted(&parts, &estimate_tokens).messages()[0].text.clone();
    let stay = full.compacted(&parts, &estimate_tokens).messages().len() - 1;
    assert_eq!(head, format!("{SUMMARY_PREFIX}: {} messages]\n\nnotes", 30 + 20 - stay));
    let forged = user(format!("{DROP_NOTE_PREFIX} {}]", u64::MAX));
    assert_eq!(represented_messages(&forged), 1, "whoever writes such a number is not believed");
}

#[test]
fn what_is_pinned_and_too_long_to_stay_is_told() {
    let pins =
        [user(format!("{PINNED_PREFIX} {}", "long ".repeat(800))), user(format!("{PINNED_PREFIX} short"))];
    let full = window([pins.to_vec(), conversation(10)].concat());
    let summary = plan(&full, 4000, CompactionTrigger::WindowFull).expect("there is enough");
    let parts = summary.apply_response("notes", &estimate_tokens).expect("it is shorter");
    let folded = full.compacted(&parts, &estimate_tokens);
    assert!(folded.messages()[0].text.contains(" messages, 1 of them pinned but too long to stay]"));
    assert_eq!(folded.messages()[1].text, format!("{PINNED_PREFIX} short"));
}

#[test]
fn old_outputs_are_dropped_before_messages() {
    let mut messages = vec![user("go")];
    messages.extend(call_with_result("c1", long_text("one")));
    messages.extend(call_with_result("c2", long_text("two")));
    messages.extend(call_with_result("c3", long_text("three")));
    let full = window(messages);
    let parts = drop_oldest(&full, full.message_tokens() - 60, &estimate_tokens).expect("something can go");
    let folded = full.compacted(&parts, &estimate_tokens);
    let outputs: Vec<_> = folded.messages().iter().filter(|message| message.role == Role::Tool).collect();
    assert_eq!(outputs[0].text, "[output dropped to make room: 104 tokens]");
    assert_eq!(
        (outputs[0].tool_call_id.as_deref(), outputs[1].text.as_str()),
        (Some("c1"), &*long_text("two"))
    );
    assert_eq!(folded.messages().len(), full.messages().len());
}

#[test]
fn a_giant_last_message_is_cut_in_its_middle() {
    let giant = format!("first {} last", "x".repeat(1_000_000));
    for before in [Vec::new(), conversation(3)] {
        let mut messages = before;
        messages.push(user(giant.clone()));
        let full = window(messages);
        let folded = full
            .compacted(&drop_oldest(&full, 1000, &estimate_tokens).expect("it can be cut"), &estimate_tokens);
        let last = folded.messages().last().expect("it is there");
        assert!(last.text.starts_with("first ") && last.text.ends_with(" last"));
        assert!(folded.message_tokens() <= 1000, "{}", folded.message_tokens());
    }
}

#[test]
fn giant_arguments_and_pictures_go_too() {
    let arguments = format!("{{\"content\":\"{}\"}}", "x".repeat(100_000));
    let call = ToolCall { id: "c".to_owned(), name: "write".to_owned(), arguments };
    let image = Image { media_type: "image/png".to_owned(), data: Arc::from([0; 8]) };
    let shown = Message { images: vec![image; 3], ..user("look") };
    let result = Message::tool_result("c", &ToolOutcome::Done("done".to_owned()));
    let full = window([shown, Message::assistant("", vec![call]), result]);
    let folded =
        full.compacted(&drop_oldest(&full, 300, &estimate_tokens).expect("it can be cut"), &estimate_tokens);
    assert!(folded.message_tokens() <= 300, "{}", folded.message_tokens());
    assert_eq!(folded.messages()[1].tool_calls[0].arguments, "{\"left_out_bytes\":100014}");
    assert_eq!(folded.messages()[0].text, "look\n[3 pictures left out]");
}

#[test]
fn dropping_always_ends_within_its_bound_and_keeps_calls_with_results() {
    let mut seed = 7_u64;
    let mut dice = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for case in 0..300 {
        let mut messages = Vec::new();
        for turn in 0..1 + dice(12) {
            messages.push(user("q".repeat(usize::try_from(dice(3000)).expect("small"))));
            for call in 0..dice(4) {
                let size = usize::try_from(dice(6000)).expect("small");
                messages.extend(call_with_result(&format!("c{turn}-{call}"), "o".repeat(size)));
            }
            messages.push(answer("a".repeat(usize::try_from(dice(3000)).expect("small"))));
        }
        let full = window(messages);
        let tokens_max = 200 + dice(2000);
        let Some(parts) = drop_oldest(&full, tokens_max, &estimate_tokens) else {
            assert!(full.message_tokens() <= tokens_max, "{case}: nothing was dropped");
            continue;
        };
        let folded = full.compacted(&parts, &estimate_tokens);
        assert!(folded.message_tokens() <= tokens_max.max(48 * folded.messages().len() as u64), "{case}");
        let mut calls: Vec<&str> = Vec::new();
        for message in folded.messages() {
            match &message.tool_call_id {
                Some(id) => assert_eq!(calls.pop(), Some(id.as_str()), "{case}"),
                None => assert!(calls.is_empty(), "{case}: a call without a result"),
            }
            calls.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        }
        let by = "test".to_owned();
        let folded_record = CompactionRecord {
            turn: None,
            by,
            method: CompactionMethod::Dropped,
            messages_before: full.messages().len(),
            tokens_before: 0,
            tokens_after: 0,
            parts,
        };
        assert_eq!(folded_record.apply(full.messages()), folded.messages(), "{case}");
        assert_eq!(folded_record.messages_after(), folded.messages().len(), "{case}");
    }
}
