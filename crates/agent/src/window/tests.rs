//! Token counts of a context, and where it may be split.

use super::*;
use crate::MessageSource;
use crate::tokens::estimate_tokens;

fn counted(message: impl Into<Arc<Message>>) -> CountedMessage {
    CountedMessage::new(message, &estimate_tokens)
}

fn overhead(budget: TokenCount) -> FixedOverhead {
    FixedOverhead { budget, ..FixedOverhead::default() }
}

#[test]
fn size_adds_up_and_saturates_at_zero() {
    let mut window = Window::new(Some("12345678"), &estimate_tokens);
    window.push(counted(Message::user("abcd", MessageSource::default())));
    let size = window.size(&overhead(8000));
    assert_eq!((size.system, size.messages, size.total), (2, 5, 7));
    assert_eq!((size.available, size.remaining), (6000, 5993));
    assert_eq!(window.size(&overhead(8)).remaining, 0);
}

#[test]
fn empty_system_prompt_counts_as_none() {
    assert!(Window::new(Some(""), &estimate_tokens).system().is_none());
    assert_eq!(Window::new(None, &estimate_tokens).size(&overhead(8000)).total, 0);
}

#[test]
fn request_has_no_empty_assistant_message() {
    let mut window = Window::new(None, &estimate_tokens);
    window.push(counted(Message::user("one", MessageSource::default())));
    window.push(counted(Message::aborted("", Ending::Cancelled)));
    window.push(counted(Message::user("two", MessageSource::default())));
    window.push(counted(Message::aborted("half", Ending::Failed)));
    let texts: Vec<_> = window.request_messages().iter().map(|message| message.text.clone()).collect();
    assert_eq!(texts, ["one", "[cancelled]", "two", "half"]);
    assert_eq!(window.messages()[1].text, "", "the stored message is unchanged");
}

#[test]
fn request_messages_are_stable_and_follow_truncation() {
    let empty = Message { ending: Some(Ending::Cancelled), ..Message::assistant("", Vec::new()) };
    let mut window = Window::default();
    for message in
        [Message::user("a", MessageSource::default()), empty, Message::user("b", MessageSource::default())]
    {
        window.push(counted(message));
    }
    let (first, second) = (window.request_messages(), window.request_messages());
    assert!(first.iter().zip(second.iter()).all(|(first, second)| Arc::ptr_eq(first, second)));
    assert_eq!(first.len(), 3);
    drop((first, second));
    window.truncate(1);
    window.push(counted(Message::user("c", MessageSource::default())));
    let texts: Vec<_> = window.request_messages().iter().map(|message| message.text.clone()).collect();
    assert_eq!(texts, ["a", "c"]);
}

#[test]
fn history_version_changes_unless_messages_are_appended() {
    let mut window = sample_window();
    let first = window.history_version().clone();
    window.push(counted(Message { ending: Some(Ending::Failed), ..Message::assistant("", Vec::new()) }));
    assert_eq!(*window.history_version(), first, "a placeholder at the end");
    let retained = |to| [CompactionPart::Retained { from: 0, to }];
    assert_ne!(*window.compacted(&retained(7), &estimate_tokens).history_version(), first);
    window.truncate(2);
    assert_ne!(*window.history_version(), first);
}

fn sample_window() -> Window {
    let call = |id: &str| crate::ToolCall { id: id.to_owned(), name: "x".into(), arguments: "{}".into() };
    let result = |id: &str| Message::tool_result(id, &crate::ToolOutcome::Done("done".to_owned()));
    let mut window = Window::new(Some("12345678"), &estimate_tokens);
    window.push(counted(Message::user("one", MessageSource::default())));
    window.push(counted(Message::assistant("", vec![call("a"), call("b")])));
    window.push(counted(result("a")));
    window.push(counted(result("b")));
    window.push(counted(Message::assistant("so", Vec::new())));
    window.push(counted(Message::user("two", MessageSource::default())));
    window
}

#[test]
fn message_capacity_is_what_prompt_and_tools_leave() {
    let mut window = Window::new(None, &estimate_tokens);
    window.push(counted(Message::user("x".repeat(2000), MessageSource::default())));
    let sizes = [0, 2000, 2800, 9000].map(|tools| window.size(&FixedOverhead { tools, ..overhead(4096) }));
    assert_eq!(sizes.map(|size| size.message_capacity()), [3072, 1072, 512, 512]);
    assert_eq!(sizes.map(|size| size.is_full()), [false, false, true, true], "of 504 tokens");
    assert_eq!(window.size(&overhead(0)).message_capacity(), 0, "unknown window");
}

#[test]
fn truncated_messages_are_no_longer_counted() {
    let full = sample_window();
    for index in 0..=full.messages().len() + 1 {
        let mut cut = full.clone();
        cut.truncate(index);
        let mut fresh = Window::new(Some("12345678"), &estimate_tokens);
        full.messages().iter().take(index).for_each(|message| fresh.push(counted(Arc::clone(message))));
        assert_eq!(cut.messages(), fresh.messages());
        assert_eq!(cut.size(&overhead(8000)), fresh.size(&overhead(8000)), "at {index}");
    }
}

#[test]
fn context_is_not_split_between_call_and_result() {
    let window = sample_window();
    let ends: Vec<_> = (0..=7).filter(|index| window.can_split_at(*index)).collect();
    assert_eq!(ends, [0, 1, 4, 5, 6], "an index beyond the end is no split");
    let empty = Window::new(None, &estimate_tokens);
    assert!(empty.can_split_at(0) && !empty.can_split_at(1));
}
