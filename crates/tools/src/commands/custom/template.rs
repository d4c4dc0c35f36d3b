//! Templates of arguments and variables: text with `${parameter}` and `${secrets.NAME}`. A value is inserted as it is;
//! nothing is split, quoted or expanded.

use std::collections::BTreeMap;

/// One argument or the value of one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Parameter(String),
    Secret(String),
}

/// The beginning of a secret's name.
const SECRET_PREFIX: &str = "secrets.";

/// Maximum length of a parameter's name.
const NAME_CHARS_MAX: usize = 64;

/// The rule of [`is_parameter_name`]; completes the sentence "the name must be …".
pub(super) const PARAMETER_NAME_RULE: &str =
    "at most 64 letters, digits and _, starting with a letter, as it is also part of a variable's name";

/// Whether a text can be the name of a parameter.
pub(super) fn is_parameter_name(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Template {
    /// Parses a template. `$${` stands for `${`; any other `$` is itself.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("has a NUL character, which no program can get".to_owned());
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, from) = rest.split_at(start);
            if let Some(before) = before.strip_suffix('$') {
                literal.push_str(before);
                literal.push_str("${");
                rest = &from[2..];
                continue;
            }
            let part = from[2..].split_once('}').and_then(|(name, after)| Some((Part::parse(name)?, after)));
            let Some((part, after)) = part else {
                return Err(format!(
                    "has `${{` without a parameter's name and `}}` in {text:?}; write `$${{` for the characters themselves"
                ));
            };
            literal.push_str(before);
            parts.push(Part::Text(std::mem::take(&mut literal)));
            parts.push(part);
            rest = after;
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        Ok(Self(parts))
    }

    /// The names of its parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Parameter(name) => Some(name.as_str()),
            Part::Text(_) | Part::Secret(_) => None,
        })
    }

    /// The names of its secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(name.as_str()),
            Part::Text(_) | Part::Parameter(_) => None,
        })
    }

    /// Inserts the values; none if one of its parameters or secrets has no value.
    pub(super) fn render(
        &self,
        values: &BTreeMap<String, String>,
        secrets: &BTreeMap<String, String>,
    ) -> Option<String> {
        let text = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Parameter(name) => values.get(name).cloned(),
            Part::Secret(name) => secrets.get(name).cloned(),
        };
        self.0.iter().map(text).collect()
    }
}

impl Part {
    /// Parses what stands between the braces.
    fn parse(name: &str) -> Option<Self> {
        match name.strip_prefix(SECRET_PREFIX) {
            Some(secret) => (!secret.is_empty()).then(|| Self::Secret(secret.to_owned())),
            None => is_parameter_name(name).then(|| Self::Parameter(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, value: &str) -> Option<String> {
        let values = BTreeMap::from([("a".to_owned(), value.to_owned())]);
        Template::parse(template).unwrap().render(&values, &BTreeMap::new())
    }

    #[test]
    fn value_is_inserted_as_it_is() {
        for value in
            ["", " ", "a b", "; rm -rf /", "$(id)", "`id`", "--flag", "${a}", "$${a}", "\n\"'\\", "ä𝄞"]
        {
            assert_eq!(render("${a}", value).as_deref(), Some(value));
            assert_eq!(render("x=${a}${a}.y", value), Some(format!("x={value}{value}.y")));
        }
    }

    #[test]
    fn dollars_without_a_parameter_are_themselves() {
        for (template, expected) in [
            ("$", "$"),
            ("$a {a} $$ $", "$a {a} $$ $"),
            ("$${a}", "${a}"),
            ("$$${a}", "$${a}"),
            ("$${${a}", "${v"),
            ("", ""),
        ] {
            assert_eq!(render(template, "v").as_deref(), Some(expected), "{template}");
        }
    }

    #[test]
    fn missing_value_leaves_the_whole_argument_out() {
        assert_eq!(render("--b=${b}", "v"), None);
    }

    #[test]
    fn malformed_template_is_refused() {
        for template in ["${", "${a", "${}", "${a b}", "${1}", "x${a-b}", "a\0b"] {
            assert!(Template::parse(template).is_err(), "{template:?}");
        }
    }
}
