//! Rule: no retired words in file names, identifiers, comments, strings and documents. The list gives the established
//! term that replaces each word.
// tidy: allow retired-word because this file lists them

use proc_macro2::{TokenStream, TokenTree};

use super::finding::{Finding, Rule};
use super::rust_file::RustFile;
use super::source_tree::TextFile;

/// A retired word, its replacement, and where the word is rejected.
struct RetiredWord {
    word: &'static str,
    replacement: &'static str,
    scope: Scope,
}

/// Where a retired word is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// File names, identifiers, comments, strings and documents.
    Everywhere,
    /// File names and identifiers only, because the word is common in English sentences.
    Names,
    /// Comments, strings and documents only.
    Prose,
}

const RETIRED: &[RetiredWord] = &[
    everywhere("brain", "backend"),
    everywhere("brains", "backends"),
    everywhere("desk", "dispatcher"),
    everywhere("dice", "rng"),
    everywhere("dismissal", "release"),
    everywhere("entrance", "target"),
    everywhere("errand", "operation"),
    everywhere("errands", "operations"),
    everywhere("everybody", "the component's or the user's name"),
    everywhere("finale", "turn exit"),
    everywhere("house", "fixture or workspace"),
    everywhere("kept", "stored, committed or retained"),
    everywhere("kin", "lineage node"),
    everywhere("kinship", "relation"),
    everywhere("lender", "budget source"),
    everywhere("lenders", "budget sources"),
    everywhere("namesake", "same request id"),
    everywhere("namesakes", "same request id"),
    everywhere("nobody", "the component's or the user's name"),
    everywhere("obedience", "prompt injection"),
    everywhere("outflow", "text decoder"),
    everywhere("playwright", "scenario writer"),
    everywhere("rights", "permissions"),
    everywhere("scribe", "transaction writer"),
    everywhere("setback", "write error"),
    everywhere("shelf", "cache or directory"),
    everywhere("shelved", "installed"),
    everywhere("shelves", "caches or directories"),
    everywhere("somebody", "the component's or the user's name"),
    everywhere("spool", "output cache"),
    everywhere("stumbled", "needs reload"),
    everywhere("teller", "progress sender"),
    everywhere("told", "reported, published or delivered"),
    everywhere("toolwork", "tool calls"),
    everywhere("turnstile", "admission"),
    everywhere("unborn", "pending"),
    everywhere("unchosen", "no default model"),
    everywhere("unsettled", "open turns"),
    everywhere("whoever", "the component's or the user's name"),
    everywhere("whomever", "the component's or the user's name"),
    names("apart", "blocking"),
    names("doing", "future"),
    names("fate", "outcome"),
    names("fates", "outcomes"),
    names("folded", "compacted"),
    names("folding", "compaction"),
    names("folds", "compactions"),
    names("gauge", "calibration"),
    names("manner", "schedule"),
    names("manners", "schedules"),
    names("patience", "retry policy"),
    names("plot", "scenario"),
    names("plots", "scenarios"),
    names("said", "text, content or message"),
    names("scene", "call site"),
    names("seat", "position or target directory"),
    names("seats", "positions"),
    names("sight", "event filter"),
    names("story", "transcript"),
    names("tape", "recording"),
    names("usual", "default"),
    prose("in line", "queued"),
];

const fn everywhere(word: &'static str, replacement: &'static str) -> RetiredWord {
    RetiredWord { word, replacement, scope: Scope::Everywhere }
}

const fn names(word: &'static str, replacement: &'static str) -> RetiredWord {
    RetiredWord { word, replacement, scope: Scope::Names }
}

const fn prose(word: &'static str, replacement: &'static str) -> RetiredWord {
    RetiredWord { word, replacement, scope: Scope::Prose }
}

/// Reports retired words in the name of a text file, and in the text of a document.
pub(crate) fn check_text(text: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stem = text.path.rsplit('/').next().unwrap_or_default();
    for retired in in_name(stem.split('.').next().unwrap_or_default()) {
        findings.push(finding(&text.path, 1, "the file name", retired));
    }
    if text.path.ends_with(".md") {
        findings.extend(in_prose(&text.path, &text.text, 1));
    }
    findings
}

/// Reports retired words in the identifiers, comments and strings of a Rust file.
pub(crate) fn check_rust(text: &TextFile, file: &RustFile<'_>) -> Vec<Finding> {
    let mut scan = Scan { text, findings: Vec::new(), end: 0, line: 1 };
    scan.check_tokens(&file.tokens);
    scan.check_comments_until(text.text.len());
    scan.findings
}

/// A walk over the tokens in source order. The text between two tokens is white space and plain comments.
struct Scan<'text> {
    text: &'text TextFile,
    findings: Vec<Finding>,
    /// The end of the last token, as a byte offset.
    end: usize,
    /// The line of the last token.
    line: usize,
}

impl Scan<'_> {
    fn check_tokens(&mut self, tokens: &TokenStream) {
        for token in tokens.clone() {
            match token {
                TokenTree::Group(group) => {
                    self.advance_past(group.span_open());
                    self.check_tokens(&group.stream());
                    self.advance_past(group.span_close());
                }
                TokenTree::Ident(ident) => {
                    self.advance_past(ident.span());
                    for retired in in_name(&ident.to_string()) {
                        self.findings.push(finding(
                            &self.text.path,
                            self.line,
                            &format!("`{ident}`"),
                            retired,
                        ));
                    }
                }
                TokenTree::Literal(literal) => self.check_literal(literal.span()),
                TokenTree::Punct(punct) => self.advance_past(punct.span()),
            }
        }
    }

    /// Checks the comments before a token whose own text is not prose.
    fn advance_past(&mut self, span: proc_macro2::Span) {
        let range = span.byte_range();
        self.check_comments_until(range.start);
        self.end = self.end.max(range.end);
        self.line = span.start().line;
    }

    /// Checks a literal or a documentation comment, whose tokens all have the span of the comment.
    fn check_literal(&mut self, span: proc_macro2::Span) {
        let range = span.byte_range();
        self.check_comments_until(range.start);
        if let Some(literal) = self.text.text.get(range.clone()) {
            self.findings.extend(in_prose(&self.text.path, literal, span.start().line));
        }
        self.end = self.end.max(range.end);
        self.line = span.end().line;
    }

    /// Checks the comments between the last token and the byte offset `start`.
    fn check_comments_until(&mut self, start: usize) {
        let Some(gap) = self.text.text.get(self.end..start).filter(|gap| !gap.trim().is_empty()) else {
            return;
        };
        let line = 1 + self.text.text[..self.end].matches('\n').count();
        self.findings.extend(in_prose(&self.text.path, gap, line));
    }
}

/// Returns the retired words among the parts of an identifier or file name.
fn in_name(name: &str) -> impl Iterator<Item = &'static RetiredWord> {
    let parts = name_parts(name);
    RETIRED
        .iter()
        .filter(|retired| retired.scope != Scope::Prose)
        .filter(move |retired| parts.iter().any(|part| part == retired.word))
}

/// Splits `KeptRecord`, `kept_record` and `kept-record` into `kept` and `record`.
fn name_parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_after_lowercase = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && is_after_lowercase) {
            parts.push(String::new());
        }
        if let (true, Some(part)) = (letter.is_alphanumeric(), parts.last_mut()) {
            part.extend(letter.to_lowercase());
        }
        is_after_lowercase = letter.is_lowercase();
    }
    parts
}

/// Reports the retired words in a text that starts at `line`.
fn in_prose(path: &str, text: &str, line: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let lowercase = text.to_lowercase();
        let in_sentences = RETIRED.iter().filter(|retired| retired.scope != Scope::Names);
        for retired in in_sentences.filter(|retired| contains_word(&lowercase, retired.word)) {
            findings.push(finding(path, line + index, &format!("\"{}\"", retired.word), retired));
        }
    }
    findings
}

fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn finding(path: &str, line: usize, subject: &str, retired: &RetiredWord) -> Finding {
    let problem = format!("{subject} uses the retired word `{}`", retired.word);
    Finding::new(Rule::RetiredWord, path, line, problem, format!("write {}", retired.replacement))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> Vec<(usize, String)> {
        let text = TextFile { path: path.to_owned(), text: source.to_owned() };
        let mut findings = check_text(&text);
        if text.is_rust() {
            findings.extend(check_rust(&text, &RustFile::parse(&text).unwrap()));
        }
        findings.into_iter().map(|finding| (finding.line, finding.problem)).collect()
    }

    fn lines(source: &str) -> Vec<usize> {
        found("a.rs", source).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn identifiers_are_checked_part_by_part() {
        for source in ["fn f(desk: u8) {}", "struct KeptRecord;", "const THE_DESK: u8 = 1;", "m!(a.desk());"]
        {
            assert_eq!(lines(&format!("//! A.\n{source}\n")), [2], "{source}");
        }
        assert_eq!(lines("//! A.\nfn desktop(kinds: u8, skin: u8) {}\n"), [] as [usize; 0]);
    }

    #[test]
    fn comments_of_every_kind_are_checked() {
        let source =
            "//! Told.\n\n/// Kept\n/// for nobody.\nfn f() {} // whoever\n// somebody\n/* fine\n kept */\n";
        assert_eq!(lines(source), [1, 3, 4, 5, 6, 8]);
    }

    #[test]
    fn strings_are_checked_line_by_line() {
        assert_eq!(lines("//! A.\nconst A: &str = \"fine \\\n    kept\";\n"), [3]);
        assert_eq!(lines("//! A.\nconst A: &str = r#\"nobody\"#;\n"), [2]);
    }

    #[test]
    fn only_whole_words_are_reported() {
        let source = "//! A kind kinetic helpdesk, untold, kept_id, said, a story, the usual scene.\n";
        assert_eq!(lines(source), [] as [usize; 0]);
        assert_eq!(lines("//! It waits in line.\n"), [1]);
    }

    #[test]
    fn file_names_and_documents_are_checked() {
        assert_eq!(found("crates/a/src/kin.rs", "//! A.\n").len(), 1);
        assert_eq!(found("docs/kin-and-kept.md", "fine\nNobody is told.\n").len(), 4);
        assert_eq!(found("a.toml", "# kept\n").len(), 0);
    }

    #[test]
    fn finding_names_the_replacement() {
        let text = TextFile { path: "a.md".to_owned(), text: "the turnstile".to_owned() };
        let shown = check_text(&text)[0].to_string();
        assert_eq!(
            shown,
            "a.md:1: retired-word: \"turnstile\" uses the retired word `turnstile`; write admission"
        );
    }
}
