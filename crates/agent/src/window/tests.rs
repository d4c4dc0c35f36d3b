//! The size of a context, and where it may end.

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
fn size_adds_up_and_never_goes_below_zero() {
    let mut window = Window::new(Some("12345678"), &estimate_tokens);
    window.push(counted(Message::user("abcd", MessageSource::default())));
    let size = window.size(&overhead(8000));
    assert_eq!((size.system, size.messages, size.total), (2, 5, 7));
    assert_eq!((size.available, size.remaining), (6000, 5993));
    assert_eq!(window.size(&overhead(8)).remaining, 0);
}

#[test]
fn an_empty_prompt_is_no_prompt() {
    assert!(Window::new(Some(""), &estimate_tokens).system().is_none());
    assert_eq!(Window::new(None, &estimate_tokens).size(&overhead(8000)).total, 0);
}

#[test]
fn a_model_is_never_shown_an_empty_answer() {
    let mut window = Window::new(None, &estimate_tokens);
    window.push(counted(Message::user("one", MessageSource::default())));
    window.push(counted(Message::aborted("", Ending::Cancelled)));
    window.push(counted(Message::user("two", MessageSource::default())));
    window.push(counted(Message::aborted("half", Ending::Failed)));
    let texts: Vec<_> = window.request_messages().iter().map(|message| message.text.clone()).collect();
    assert_eq!(texts, ["one", "[cancelled]", "two", "half"]);
    assert_eq!(window.messages()[1].text, "", "what is kept stays as it was");
}

#[test]
fn what_a_model_is_shown_is_the_same_each_time_and_ends_where_the_context_does() {
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
fn a_lineage_lasts_as_long_as_messages_are_only_added() {
    let mut window = sample_window();
    let first = window.history_version().clone();
    window.push(counted(Message { ending: Some(Ending::Failed), ..Message::assistant("", Vec::new()) }));
    assert_eq!(*window.history_version(), first, "one is shown differently, at the end");
    let stays = |to| [CompactionPart::Retained { from: 0, to }];
    assert_ne!(*window.compacted(&stays(7), &estimate_tokens).history_version(), first);
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
fn messages_have_what_prompt_and_tools_leave_and_never_nothing() {
    let mut window = Window::new(None, &estimate_tokens);
    window.push(counted(Message::user("x".repeat(2000), MessageSource::default())));
    let sizes = [0, 2000, 2800, 9000].map(|tools| window.size(&FixedOverhead { tools, ..overhead(4096) }));
    assert_eq!(sizes.map(|size| size.message_capacity()), [3072, 1072, 512, 512]);
    assert_eq!(sizes.map(|size| size.is_full()), [false, false, true, true], "of 504 tokens");
    assert_eq!(window.size(&overhead(0)).message_capacity(), 0, "not known");
}

#[test]
fn what_is_cut_off_is_no_longer_counted() {
    let whole = sample_window();
    for place in 0..=whole.messages().len() + 1 {
        let mut cut = whole.clone();
        cut.truncate(place);
        let mut fresh = Window::new(Some("12345678"), &estimate_tokens);
        whole.messages().iter().take(place).for_each(|message| fresh.push(counted(Arc::clone(message))));
        assert_eq!(cut.messages(), fresh.messages());
        assert_eq!(cut.size(&overhead(8000)), fresh.size(&overhead(8000)), "at {place}");
    }
}

#[test]
fn a_context_ends_anywhere_but_between_a_call_and_its_results() {
    let window = sample_window();
    let ends: Vec<_> = (0..=7).filter(|place| window.can_split_at(*place)).collect();
    assert_eq!(ends, [0, 1, 4, 5, 6], "not behind the last message either");
    let empty = Window::new(None, &estimate_tokens);
    assert!(empty.can_split_at(0) && !empty.can_split_at(1));
}
