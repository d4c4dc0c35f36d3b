//! What a rule answers: where, which rule, what is wrong, what to do. And the list of rules.

use std::fmt;

/// One thing that breaks a rule. Ordered by place, so that a list reads like the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: Rule,
    pub(crate) problem: String,
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
        Self { path: path.to_owned(), line, rule, problem: wrong.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, problem: wrong, remedy } = self;
        write!(formatter, "{path}:{line}: {}: {wrong}; {remedy}", rule.name())
    }
}

/// Every rule there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Which crate may use which.
    Room,
    /// What the code of a room may name.
    StdAccess,
    /// No crate that is called `utils`.
    CrateName,
    /// Every dependency has a written reason.
    DependencyReason,
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
    /// No word of the project's former private vocabulary.
    RetiredWord,
    /// A public type name is defined in one crate.
    DoubledType,
    /// A function name is read at a glance.
    NameLength,
    /// The glossary is short.
    GlossarySize,
    /// A comment that suppresses a rule is well formed and needed.
    Suppression,
}

impl Rule {
    pub(crate) const ALL: [Self; 20] = [
        Self::Room,
        Self::StdAccess,
        Self::CrateName,
        Self::DependencyReason,
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
        Self::RetiredWord,
        Self::DoubledType,
        Self::NameLength,
        Self::GlossarySize,
        Self::Suppression,
    ];

    /// The name in findings and in comments that lift the rule.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::StdAccess => "std-access",
            Self::CrateName => "crate-name",
            Self::DependencyReason => "dependency-reason",
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
            Self::RetiredWord => "retired-word",
            Self::DoubledType => "doubled-type",
            Self::NameLength => "name-length",
            Self::GlossarySize => "glossary-size",
            Self::Suppression => "suppression",
        }
    }

    /// Whether a comment may lift it. The map of the house changes in its table, never in passing.
    pub(crate) fn can_be_suppressed(self) -> bool {
        match self {
            Self::FileLines
            | Self::FunctionLines
            | Self::Unfinished
            | Self::Fixme
            | Self::IgnoredTest
            | Self::AllowAttribute
            | Self::MachinePath
            | Self::RetiredWord => true,
            Self::Room
            | Self::StdAccess
            | Self::CrateName
            | Self::DependencyReason
            | Self::Parse
            | Self::DocumentLines
            | Self::Header
            | Self::ModFile
            | Self::DoubledType
            | Self::NameLength
            | Self::GlossarySize
            | Self::Suppression => false,
        }
    }
}
