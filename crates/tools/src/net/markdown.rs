//! HTML as Markdown. Works on the tokens of the parser without a tree: a hostile page with a million nested elements
//! costs time and memory in proportion to its length, and no stack.

mod writer;

use std::cell::RefCell;

use agent::ToolOutcome;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use url::Url;

use self::writer::Writer;
use crate::blocking::CancelFlag;

/// A page for a model.
pub(super) struct Page {
    /// The title; empty if there is none.
    pub(super) title: String,
    pub(super) markdown: String,
}

/// Bytes between two checks for cancellation.
const CHUNK_BYTES: usize = 16 << 10;

/// Elements whose content is not for readers.
const SKIPPED: &[&str] = &[
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "noembed",
    "noframes",
];

/// Converts a page. Links are resolved against its URL.
pub(super) fn convert(html: &str, url: &str, stop: &CancelFlag) -> Result<Page, ToolOutcome> {
    let sink = PageSink { writer: RefCell::new(Writer::new(Url::parse(url).ok())) };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut rest = html;
    while !rest.is_empty() && !tokenizer.sink.writer.borrow().is_full() {
        stop.check()?;
        let (chunk, further) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES));
        input.push_back(StrTendril::from_slice(chunk));
        // The sink runs no scripts, so the tokenizer pauses only at the end of its input.
        let _ = tokenizer.feed(&input);
        rest = further;
    }
    tokenizer.end();
    let (title, markdown) = tokenizer.sink.writer.into_inner().finish();
    Ok(Page { title, markdown })
}

struct PageSink {
    writer: RefCell<Writer>,
}

impl TokenSink for PageSink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut writer = self.writer.borrow_mut();
        match token {
            Token::CharacterTokens(text) => writer.text(&text),
            Token::TagToken(tag) => return process_tag(&mut writer, &tag),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn process_tag(writer: &mut Writer, tag: &Tag) -> TokenSinkResult<()> {
    let name = &*tag.name;
    let is_skipped = SKIPPED.contains(&name);
    match tag.kind {
        TagKind::StartTag if is_skipped => writer.begin_skipping(name, tag.self_closing),
        TagKind::EndTag if is_skipped => writer.end_skipping(name),
        _ if writer.is_skipping() => {}
        TagKind::StartTag => start(writer, tag),
        TagKind::EndTag => end(writer, name),
    }
    match (tag.kind, name) {
        (TagKind::StartTag, "script") => TokenSinkResult::RawData(RawKind::ScriptData),
        (TagKind::StartTag, "style" | "noembed" | "noframes" | "iframe") => {
            TokenSinkResult::RawData(RawKind::Rawtext)
        }
        (TagKind::StartTag, "title" | "textarea") => TokenSinkResult::RawData(RawKind::Rcdata),
        _ => TokenSinkResult::Continue,
    }
}

fn start(writer: &mut Writer, tag: &Tag) {
    let attribute = |name: &str| {
        tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
    };
    match &*tag.name {
        "title" => writer.begin_title(),
        "h1" => writer.heading(1),
        "h2" => writer.heading(2),
        "h3" => writer.heading(3),
        "h4" => writer.heading(4),
        "h5" => writer.heading(5),
        "h6" => writer.heading(6),
        "p" | "table" | "figure" | "dl" => writer.break_paragraph(),
        "br" => writer.break_line(),
        "hr" => writer.rule(),
        "ul" => writer.begin_list(None),
        "ol" => writer.begin_list(Some(1)),
        "li" => writer.item(),
        "blockquote" => writer.begin_quote(),
        "pre" => writer.begin_code_block(),
        "code" => writer.code(),
        "strong" | "b" => writer.begin_emphasis("**"),
        "em" | "i" => writer.begin_emphasis("*"),
        "a" => writer.begin_link(attribute("href").unwrap_or_default()),
        "img" => writer.image(attribute("alt").unwrap_or_default(), attribute("src").unwrap_or_default()),
        "tr" => writer.begin_row(),
        "td" | "th" => writer.cell(),
        name if is_block(name) => writer.break_line(),
        _ => {}
    }
}

fn end(writer: &mut Writer, name: &str) {
    match name {
        "title" => writer.end_title(),
        "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "table" | "figure" | "dl" => writer.break_paragraph(),
        "ul" | "ol" => writer.end_list(),
        "blockquote" => writer.end_quote(),
        "pre" => writer.end_code_block(),
        "code" => writer.code(),
        "strong" | "b" => writer.end_emphasis("**"),
        "em" | "i" => writer.end_emphasis("*"),
        "a" => writer.end_link(),
        "tr" => writer.end_row(),
        name if is_block(name) => writer.break_line(),
        _ => {}
    }
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "body"
            | "caption"
            | "dd"
            | "details"
            | "div"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "footer"
            | "form"
            | "header"
            | "main"
            | "nav"
            | "option"
            | "section"
            | "select"
            | "summary"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markdown(html: &str) -> String {
        convert(html, "https://a.example/dir/page", &CancelFlag::new()).unwrap().markdown
    }

    #[test]
    fn pages_become_markdown() {
        let cases = [
            ("<h1>One</h1><p>Two <b>bold</b> and <em>more</em>.</p>", "# One\n\nTwo **bold** and *more*."),
            ("<p>a\n  b<br>c</p><div>d</div><div>e</div>", "a b\nc\n\nd\ne"),
            ("<ul><li>x<li>y<ol><li>z</ol></ul>after", "- x\n- y\n  1. z\n\nafter"),
            (
                "<a href='../up?q=1'>go</a> <a href='javascript:x()'>no</a>",
                "[go](https://a.example/up?q=1) no",
            ),
            ("<img alt='A cat' src=/cat.png><img src=x.png>", "![A cat](https://a.example/cat.png)"),
            ("<pre><code>let x = 1;\n  y()</code></pre>", "```\nlet x = 1;\n  y()\n```"),
            ("use <code>cargo</code>!", "use `cargo`!"),
            ("<blockquote><p>said</p></blockquote>", "> said"),
            ("<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>", "| a | b |\n|---|---|\n| 1 | 2 |"),
            ("x<script>if (a < b) { '</p>' }</script><style>p{}</style>y", "xy"),
            ("<svg><text>no</text></svg><noscript>no</noscript>yes", "yes"),
            ("a &amp; b &lt;c&gt; &nbsp;d", "a & b <c> d"),
            ("<b></b><a href=x></a>text<hr>end", "text\n\n---\n\nend"),
        ];
        for (html, expected) in cases {
            assert_eq!(markdown(html), expected, "{html}");
        }
    }

    #[test]
    fn title_is_separate() {
        let page =
            convert("<title> A &amp;\n B </title><p>x", "https://a.example/", &CancelFlag::new()).unwrap();
        assert_eq!((page.title.as_str(), page.markdown.as_str()), ("A & B", "x"));
    }

    #[test]
    fn hostile_pages_end() {
        let hostile = [
            "<div>".repeat(200_000),
            "<b><table></b></table>".repeat(50_000),
            "<blockquote><ul><li>x".repeat(50_000),
            "<a href=a>x</a>".repeat(100_000),
            "<a href=a>".repeat(100_000),
            "<select><option><selectedcontent>".repeat(50_000),
            format!("<p {}>x", "a=1 b=2 ".repeat(1_000)),
            "<!--".repeat(100_000),
            "<script>".repeat(100_000),
            "&".repeat(500_000),
        ];
        for html in hostile {
            let page = markdown(&html);
            assert!(page.len() <= 5 << 20, "{}: {}", &html[..20], page.len());
        }
    }

    #[test]
    fn cancelled_conversion_ends() {
        assert!(convert("<p>x", "https://a.example/", &CancelFlag::cancelled()).is_err());
    }
}
