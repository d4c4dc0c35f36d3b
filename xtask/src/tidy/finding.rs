//! What a rule answers: where, which rule, what is wrong, what to do. And the list of rules.

use std::fmt;

/// One thing that breaks a rule. Ordered by place, so that a list reads like the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: Rule,
    pub(crate) wrong: String,
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(
        rule: Rule,
        path: &str,
        line: usize,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, rule, wrong: wrong.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, wrong, remedy } = self;
        write!(formatter, "{path}:{line}: {}: {wrong}; {remedy}", rule.name())
    }
}

/// Every rule there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Which crate may use which.
    Room,
    /// What the code of a room may name.
    Reach,
    /// No crate that is called `utils`.
    CrateName,
    /// Every dependency has a written reason.
    Reason,
    /// A Rust file is Rust.
    Parse,
    FileLines,
    FunctionLines,
    DocumentLines,
    /// A `//!` header in every file.
    Header,
    /// No macro that stands for missing code.
    Unfinished,
    /// No mark for later.
    Fixme,
    IgnoredTest,
    /// `expect` with a reason instead of `allow`.
    AllowAttribute,
    /// `pool.rs` beside `pool/`, not `pool/mod.rs`.
    ModFile,
    /// Nothing that is true on one machine only.
    MachinePath,
    /// A comment that lifts a rule is itself right and needed.
    Lift,
}

impl Rule {
    pub(crate) const ALL: [Self; 16] = [
        Self::Room,
        Self::Reach,
        Self::CrateName,
        Self::Reason,
        Self::Parse,
        Self::FileLines,
        Self::FunctionLines,
        Self::DocumentLines,
        Self::Header,
        Self::Unfinished,
        Self::Fixme,
        Self::IgnoredTest,
        Self::AllowAttribute,
        Self::ModFile,
        Self::MachinePath,
        Self::Lift,
    ];

    /// The name in findings and in comments that lift the rule.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Reach => "reach",
            Self::CrateName => "crate-name",
            Self::Reason => "reason",
            Self::Parse => "parse",
            Self::FileLines => "file-lines",
            Self::FunctionLines => "function-lines",
            Self::DocumentLines => "document-lines",
            Self::Header => "header",
            Self::Unfinished => "unfinished",
            Self::Fixme => "fixme",
            Self::IgnoredTest => "ignored-test",
            Self::AllowAttribute => "allow-attribute",
            Self::ModFile => "mod-file",
            Self::MachinePath => "machine-path",
            Self::Lift => "lift",
        }
    }

    /// Whether a comment may lift it. The map of the house changes in its table, never in passing.
    pub(crate) fn can_be_lifted(self) -> bool {
        match self {
            Self::FileLines
            | Self::FunctionLines
            | Self::Unfinished
            | Self::Fixme
            | Self::IgnoredTest
            | Self::AllowAttribute
            | Self::MachinePath => true,
            Self::Room
            | Self::Reach
            | Self::CrateName
            | Self::Reason
            | Self::Parse
            | Self::DocumentLines
            | Self::Header
            | Self::ModFile
            | Self::Lift => false,
        }
    }
}
