//! The secrets of the configuration, `[secrets.NAME]`: read once at the start, and made known so that nothing shows them.

use std::collections::BTreeMap;

use agent::{KnownSecrets, SECRET_BYTES_MIN};
use provider::{KeySource, Secret};

use crate::Failure;
use crate::config::{Config, SecretSource};
use crate::home::{Environment, environment_variable};

/// The secrets by name, for custom tools.
pub(crate) type ConfiguredSecrets = BTreeMap<String, String>;

/// Reads all secrets of the configuration and makes them known.
pub(crate) async fn read(
    config: &Config,
    environment: &Environment,
    known_secrets: &KnownSecrets,
) -> Result<ConfiguredSecrets, Failure> {
    let mut secrets = ConfiguredSecrets::new();
    for (name, source) in config.secret_sources() {
        let fault = |why: String| Failure::Usage(format!("cannot read secrets.{name}: {why}"));
        let source = match source {
            SecretSource::Key(source) => source,
            SecretSource::Variable(variable) => {
                let value = environment_variable(environment, &variable)?;
                let value = value.ok_or_else(|| {
                    fault(format!("the variable {variable} is not set; set it before nexus3 starts"))
                })?;
                KeySource::Given { name: variable, key: Secret::new(value) }
            }
        };
        let secret = source.read().await.map_err(|why| fault(why.public.into_owned()))?;
        let secret = secret.filter(|secret| secret.expose().len() >= SECRET_BYTES_MIN).ok_or_else(|| {
            fault(format!("it is shorter than {SECRET_BYTES_MIN} characters and could not be recognized"))
        })?;
        known_secrets.add_permanent(secret.expose());
        secrets.insert(name.to_owned(), secret.expose().to_owned());
    }
    Ok(secrets)
}
