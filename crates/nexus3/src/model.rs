//! Which model the user chose, and how to reach it.

use std::sync::Arc;

use agent::outside::Provider;
use provider::NoModel;
use provider::openai::{BASE_URL_DEFAULT, OpenAi, OpenAiOptions};

use crate::Failure;
use crate::home::{Environment, variable};

/// The model of a daemon; without a name, one that says how to choose.
pub(crate) fn choose(model: Option<&str>, environment: &Environment) -> Result<Arc<dyn Provider>, Failure> {
    let Some(model) = model else { return Ok(Arc::new(NoModel)) };
    match model.split_once('/') {
        Some(("openai", name)) => openai(name, environment),
        _ => Err(Failure::Usage(format!(
            "model {model:?}: the provider must be openai, as in openai/gpt-4o-mini"
        ))),
    }
}

fn openai(name: &str, environment: &Environment) -> Result<Arc<dyn Provider>, Failure> {
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
    let model = OpenAi::new(options).map_err(|fault| Failure::Usage(fault.to_string()))?;
    Ok(Arc::new(model))
}
