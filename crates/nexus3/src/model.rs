//! Which models there are: the one the user chose, and others of the same server by name.

use std::sync::Arc;

use agent::outside::{Models, Provider};
use agent::{Fault, FaultKind};
use provider::NoModel;
use provider::openai::{BASE_URL_DEFAULT, OpenAi, OpenAiOptions};

use crate::Failure;
use crate::home::{Environment, variable};

/// The models of a daemon.
pub(crate) struct ModelShelf {
    usual: Arc<dyn Provider>,
    /// The way to OpenAI's models, when the environment says how to reach them.
    openai: Option<OpenAi>,
}

/// What a model's name looks like.
const SHAPE: &str = "as in openai/gpt-4o-mini";

/// The longest name of a model.
const NAME_CHARS_MAX: usize = 200;

impl ModelShelf {
    /// The models, with the named one as the usual; without a name, one that says how to choose.
    pub(crate) fn open(model: Option<&str>, environment: &Environment) -> Result<Self, Failure> {
        let Some(model) = model else {
            // A server that cannot be reached is only a fault once somebody asks for its models.
            return Ok(Self { usual: Arc::new(NoModel), openai: openai("", environment).ok() });
        };
        match model.split_once('/') {
            Some(("openai", name)) => {
                let openai = openai(name, environment)?;
                Ok(Self { usual: Arc::new(openai.clone()), openai: Some(openai) })
            }
            _ => Err(Failure::Usage(format!("model {model:?}: the provider must be openai, {SHAPE}"))),
        }
    }
}

impl Models for ModelShelf {
    fn usual(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.usual)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        let unknown = |why: &str| Fault::new(FaultKind::Invalid, format!("Unknown model '{shown}': {why}"));
        match name.split_once('/') {
            Some(("openai", model)) if is_name(model) => {
                let openai = self.openai.as_ref();
                let openai = openai.ok_or_else(|| {
                    unknown("start the daemon with OPENAI_API_KEY or OPENAI_BASE_URL in its environment")
                })?;
                Ok(Arc::new(openai.sibling(model)))
            }
            _ => Err(unknown(&format!("the name must be PROVIDER/NAME, {SHAPE}"))),
        }
    }
}

fn is_name(model: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&model.len()) && model.bytes().all(|byte| byte.is_ascii_graphic())
}

fn openai(name: &str, environment: &Environment) -> Result<OpenAi, Failure> {
    let base_url = variable(environment, "OPENAI_BASE_URL")?;
    let api_key = variable(environment, "OPENAI_API_KEY")?;
    if base_url.is_none() && api_key.is_none() {
        let text = format!(
            "model openai/{name} needs OPENAI_API_KEY in the environment, or OPENAI_BASE_URL for a server that needs none"
        );
        return Err(Failure::Usage(text));
    }
    if api_key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(Failure::Usage("OPENAI_API_KEY holds a blank or a character that no key has".to_owned()));
    }
    let options = OpenAiOptions {
        model: name.to_owned(),
        base_url: base_url.unwrap_or_else(|| BASE_URL_DEFAULT.to_owned()),
        api_key,
    };
    OpenAi::new(options).map_err(|fault| Failure::Usage(fault.to_string()))
}
