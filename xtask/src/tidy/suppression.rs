//! Comments that suppress a rule in one place: `// tidy: allow <rule> because <reason>`.
//! A comment without a reason, or one that suppresses no finding, is a finding itself.

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;

const PREFIX: &str = "tidy: allow ";

/// Removes the findings that a comment in the file suppresses, and adds findings about the comments.
pub(crate) fn apply(text: &TextFile, findings: Vec<Finding>) -> Vec<Finding> {
    // In a document the comment is an example and suppresses nothing.
    if text.path.ends_with(".md") {
        return findings;
    }
    let mut remaining = findings;
    let mut about_comments = Vec::new();
    for (index, argument) in comments(&text.text) {
        let problem = match Suppression::parse(&text.text, index, argument) {
            Err(problem) => Some(problem),
            Ok(suppression) => {
                let before = remaining.len();
                remaining.retain(|finding| !suppression.covers(finding));
                (remaining.len() == before).then(|| {
                    let problem = format!("no finding of `{}` to suppress", suppression.rule.name());
                    (problem, "delete the comment".to_owned())
                })
            }
        };
        about_comments.extend(problem.map(|(problem, remedy)| {
            Finding::new(Rule::Suppression, &text.path, index + 1, problem, remedy)
        }));
    }
    remaining.extend(about_comments);
    remaining
}

/// A valid comment: the rule that it suppresses, and where.
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
    /// Parses the text after `tidy: allow`; the error is the problem and its remedy.
    fn parse(text: &str, index: usize, argument: &str) -> Result<Self, (String, String)> {
        let (name, reason) = argument.split_once(" because").unwrap_or((argument, ""));
        let name = name.trim();
        let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.name() == name && rule.can_be_suppressed())
        else {
            let names = Rule::ALL.into_iter().filter(|rule| rule.can_be_suppressed()).map(Rule::name);
            let names: Vec<_> = names.collect();
            return Err((
                format!("no rule `{name}` that can be suppressed"),
                format!("write one of {}", names.join(", ")),
            ));
        };
        if reason.trim().is_empty() {
            return Err((
                format!("`{name}` is suppressed without a reason"),
                format!("write `tidy: allow {name} because <reason>`"),
            ));
        }
        let scope =
            if precedes_code(text, index) { Scope::File } else { Scope::Line(next_code_line(text, index)) };
        Ok(Self { rule, scope })
    }

    fn covers(&self, finding: &Finding) -> bool {
        let is_in_scope = match self.scope {
            Scope::File => true,
            Scope::Line(line) => finding.line == line,
        };
        is_in_scope && finding.rule == self.rule
    }
}

/// Returns the index of each line with such a comment, and the text after the prefix.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let line = line.trim();
        let comment = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?;
        Some((index, comment.trim().strip_prefix(PREFIX)?))
    })
}

fn precedes_code(text: &str, index: usize) -> bool {
    text.lines().take(index).all(|line| is_blank_or_comment(line.trim()))
}

/// Returns the number of the next line that is neither blank nor a comment or attribute.
fn next_code_line(text: &str, index: usize) -> usize {
    let mut open = 0_usize;
    for (next, line) in text.lines().enumerate().skip(index + 1) {
        let line = line.trim();
        let in_attribute = open > 0 || line.starts_with("#[");
        if in_attribute {
            // A long attribute spans several lines.
            open = (open + line.matches('[').count()).saturating_sub(line.matches(']').count());
        } else if !is_blank_or_comment(line) {
            return next + 1;
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

    fn remaining(source: &str, findings: &[(usize, Rule)]) -> Vec<(usize, Rule)> {
        let text = TextFile { path: "a.rs".to_owned(), text: source.to_owned() };
        let findings =
            findings.iter().map(|(line, rule)| Finding::new(*rule, "a.rs", *line, "", "")).collect();
        apply(&text, findings).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn comment_before_the_code_covers_the_whole_file() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\n\nfn f() {}\n";
        assert_eq!(remaining(source, &[(501, Rule::FileLines)]), []);
    }

    #[test]
    fn comment_above_a_function_covers_that_function_only() {
        let source = "//! A.\nuse b;\n\n// tidy: allow function-lines because it is one table\n/// Does it.\n\
            #[expect(\n    c,\n    reason = \"d\"\n)]\nfn f() {}\nfn g() {}\n";
        let both = [(10, Rule::FunctionLines), (11, Rule::FunctionLines)];
        assert_eq!(remaining(source, &both), [(11, Rule::FunctionLines)]);
    }

    #[test]
    fn other_rules_are_not_suppressed() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\nfn f() {}\n";
        let found = [(501, Rule::FileLines), (2, Rule::Fixme)];
        assert_eq!(remaining(source, &found), [(2, Rule::Fixme)]);
    }

    #[test]
    fn comment_without_reason_or_rule_is_reported() {
        for comment in [
            "// tidy: allow file-lines",
            "// tidy: allow file-lines because",
            "// tidy: allow file-lines because  ",
            "// tidy: allow everything because we can",
            "// tidy: allow room because we can",
        ] {
            let found = remaining(&format!("//! A.\n{comment}\n"), &[(501, Rule::FileLines)]);
            assert_eq!(found, [(501, Rule::FileLines), (2, Rule::Suppression)], "{comment}");
        }
    }

    #[test]
    fn unnecessary_comment_is_reported() {
        let source = "//! A.\n// tidy: allow file-lines because it is one table\nfn f() {}\n";
        assert_eq!(remaining(source, &[]), [(2, Rule::Suppression)]);
    }

    #[test]
    fn comment_in_a_document_is_ignored() {
        let text = "// tidy: allow <rule> because <reason>\n".to_owned();
        assert!(apply(&TextFile { path: "STYLE.md".to_owned(), text }, Vec::new()).is_empty());
    }
}
