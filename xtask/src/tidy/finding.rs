//! Findings of the rules, and the list of rules.

use std::fmt;

/// A violation of a rule. Findings are ordered by path and line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root, with `/` as separator.
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
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, rule, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, problem, remedy } = self;
        write!(formatter, "{path}:{line}: {}: {problem}; {remedy}", rule.name())
    }
}

/// The rules of tidy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A crate depends only on crates that its row in the room table allows.
    Room,
    /// A room uses only the parts of the standard library that its row allows.
    StdAccess,
    /// No crate is named `utils`, `common` or the like.
    CrateName,
    /// Every dependency has a written reason.
    DependencyReason,
    /// A Rust file parses.
    Parse,
    FileLines,
    FunctionLines,
    DocumentLines,
    /// A `//!` header in every file.
    Header,
    /// No macro that marks missing code, such as `todo!`.
    Unfinished,
    /// No comment that marks work for later.
    Fixme,
    IgnoredTest,
    /// `expect` with a reason instead of `allow`.
    AllowAttribute,
    /// `pool.rs` beside `pool/`, not `pool/mod.rs`.
    ModFile,
    /// No path that exists on one machine only.
    MachinePath,
    /// No word that the project has replaced by an established term.
    RetiredWord,
    /// A public type name is defined in one crate only.
    DuplicateType,
    /// Function names have at most 60 characters.
    NameLength,
    /// The glossary has at most 20 entries.
    GlossarySize,
    /// The table of threats and the tests of its rows agree.
    Threats,
    /// A comment that suppresses a rule is well formed and necessary.
    Suppression,
}

impl Rule {
    pub(crate) const ALL: [Self; 21] = [
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
        Self::DuplicateType,
        Self::NameLength,
        Self::GlossarySize,
        Self::Threats,
        Self::Suppression,
    ];

    /// The name in findings and in comments that suppress the rule.
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
            Self::DuplicateType => "duplicate-type",
            Self::NameLength => "name-length",
            Self::GlossarySize => "glossary-size",
            Self::Threats => "threats",
            Self::Suppression => "suppression",
        }
    }

    /// Whether a comment may suppress the rule. Architectural rules change only in their table.
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
            | Self::DuplicateType
            | Self::NameLength
            | Self::GlossarySize
            | Self::Threats
            | Self::Suppression => false,
        }
    }
}
