//! Comments that lift a rule in one place: `// tidy: allow <rule> because <reason>`.
//! A comment without a reason, or that lifts nothing any more, is a finding itself.

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;

const PREFIX: &str = "tidy: allow ";

/// Removes the findings that a comment in the file lifts, and adds those about the comments.
pub(crate) fn apply(text: &TextFile, findings: Vec<Finding>) -> Vec<Finding> {
    // A document may show the comment as an example; it can't lift anything.
    if text.path.ends_with(".md") {
        return findings;
    }
    let mut remaining = findings;
    let mut about = Vec::new();
    for (index, words) in comments(&text.text) {
        let line = index + 1;
        match Suppression::parse(&text.text, index, words) {
            Err((wrong, remedy)) => {
                about.push(Finding::new(Rule::Suppression, &text.path, line, wrong, remedy))
            }
            Ok(lift) => {
                let before = remaining.len();
                remaining.retain(|finding| !lift.covers(finding));
                if remaining.len() == before {
                    let wrong = format!("nothing here breaks `{}`", lift.rule.name());
                    about.push(Finding::new(
                        Rule::Suppression,
                        &text.path,
                        line,
                        wrong,
                        "delete the comment",
                    ));
                }
            }
        }
    }
    remaining.extend(about);
    remaining
}

struct Suppression {
    rule: Rule,
    scope: Scope,
}

enum Scope {
    File,
    /// The first line of code below the comment.
    Line(usize),
}

impl Suppression {
    fn parse(text: &str, index: usize, words: &str) -> Result<Self, (String, String)> {
        let (name, reason) = words.split_once(" because").unwrap_or((words, ""));
        let name = name.trim();
        let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.name() == name && rule.can_be_suppressed())
        else {
            let names = Rule::ALL.into_iter().filter(|rule| rule.can_be_suppressed()).map(Rule::name);
            let names: Vec<_> = names.collect();
            return Err((
                format!("no rule `{name}` can be lifted"),
                format!("write one of {}", names.join(", ")),
            ));
        };
        if reason.trim().is_empty() {
            return Err((
                format!("`{name}` is lifted without a reason"),
                format!("write `tidy: allow {name} because <reason>`"),
            ));
        }
        let scope =
            if precedes_code(text, index) { Scope::File } else { Scope::Line(next_code_line(text, index)) };
        Ok(Self { rule, scope })
    }

    fn covers(&self, finding: &Finding) -> bool {
        let place = match self.scope {
            Scope::File => true,
            Scope::Line(line) => finding.line == line,
        };
        place && finding.rule == self.rule
    }
}

/// Lines that are such a comment: their index and what follows the mark.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let line = line.trim();
        let words = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?;
        Some((index, words.trim().strip_prefix(PREFIX)?))
    })
}

fn precedes_code(text: &str, index: usize) -> bool {
    text.lines().take(index).all(|line| is_blank_or_comment(line.trim()))
}

/// The number of the next line that is neither comment nor attribute.
fn next_code_line(text: &str, index: usize) -> usize {
    let mut open = 0_usize;
    for (below, line) in text.lines().enumerate().skip(index + 1) {
        let line = line.trim();
        let in_attribute = open > 0 || line.starts_with("#[");
        if in_attribute {
            // A long attribute is broken over several lines.
            open = (open + line.matches('[').count()).saturating_sub(line.matches(']').count());
        } else if !is_blank_or_comment(line) {
            return below + 1;
        }
    }
    index + 1
}

fn is_blank_or_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with("//") || (line.starts_with('#') && !line.starts_with("#["))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(source: &str, findings: &[(usize, Rule)]) -> Vec<(usize, Rule)> {
        let text = TextFile { path: "a.rs".to_owned(), text: source.to_owned() };
        let findings =
            findings.iter().map(|(line, rule)| Finding::new(*rule, "a.rs", *line, "", "")).collect();
        apply(&text, findings).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_comment_before_the_code_lifts_for_the_whole_file() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\n\nfn f() {}\n";
        assert_eq!(left(source, &[(501, Rule::FileLines)]), []);
    }

    #[test]
    fn a_comment_above_a_function_lifts_for_that_function_only() {
        let source = "//! A.\nuse b;\n\n// tidy: allow function-lines because it is one table\n/// Does it.\n\
            #[expect(\n    c,\n    reason = \"d\"\n)]\nfn f() {}\nfn g() {}\n";
        let both = [(10, Rule::FunctionLines), (11, Rule::FunctionLines)];
        assert_eq!(left(source, &both), [(11, Rule::FunctionLines)]);
    }

    #[test]
    fn other_rules_are_not_lifted() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\nfn f() {}\n";
        let found = [(501, Rule::FileLines), (2, Rule::Fixme)];
        assert_eq!(left(source, &found), [(2, Rule::Fixme)]);
    }

    #[test]
    fn a_comment_without_reason_or_rule_lifts_nothing_and_is_found() {
        for comment in [
            "// tidy: allow file-lines",
            "// tidy: allow file-lines because",
            "// tidy: allow file-lines because  ",
            "// tidy: allow everything because we can",
            "// tidy: allow room because we can",
        ] {
            let found = left(&format!("//! A.\n{comment}\n"), &[(501, Rule::FileLines)]);
            assert_eq!(found, [(501, Rule::FileLines), (2, Rule::Suppression)], "{comment}");
        }
    }

    #[test]
    fn a_comment_that_lifts_nothing_any_more_is_found() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\nfn f() {}\n";
        assert_eq!(left(source, &[]), [(2, Rule::Suppression)]);
    }

    #[test]
    fn a_document_may_show_the_comment() {
        let text = "// tidy: allow <rule> because <reason>\n".to_owned();
        assert!(apply(&TextFile { path: "STYLE.md".to_owned(), text }, Vec::new()).is_empty());
    }
}
