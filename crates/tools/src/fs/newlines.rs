//! The newline style of a text file, which edits retain.

/// How the lines of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewlineStyle {
    /// All with CR LF, as on Windows.
    CrLf,
    /// With LF, or mixed.
    Other,
}

impl NewlineStyle {
    /// The style of a text.
    pub(super) fn of(text: &str) -> Self {
        let lines = text.matches('\n').count();
        let is_windows = lines > 0 && lines == text.matches("\r\n").count();
        if is_windows { NewlineStyle::CrLf } else { NewlineStyle::Other }
    }

    /// A model's text with line ends in this style. Models write LF even if they read CR LF.
    pub(super) fn apply(self, text: String) -> String {
        match self {
            NewlineStyle::CrLf => text.replace("\r\n", "\n").replace('\n', "\r\n"),
            NewlineStyle::Other => text,
        }
    }
}
