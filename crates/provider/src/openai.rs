//! OpenAI's chat completions.

mod answer;
mod question;

use agent::Fault;
use agent::outside::{ModelEvent, ModelRequest};
use bytes::Bytes;

use self::answer::AnswerReader;
use crate::dialect::{self, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// The API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat;

impl Chat {
    pub(crate) const OPENAI: Self = Self;
    pub(crate) const COMPATIBLE: Self = Self;
}

impl Dialect for Chat {
    fn endpoint(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn write(&self, model: &ModelOptions, request: &ModelRequest, _: &PrefixShelf) -> Result<Vec<Bytes>, Fault> {
        question::write(&model.name, request).map(|body| vec![Bytes::from(body)])
    }

    fn reader(&self) -> Box<dyn dialect::AnswerReader> {
        Box::new(AnswerReader::default())
    }
}

impl dialect::AnswerReader for AnswerReader {
    fn take(&mut self, data: &[u8], each: &mut dyn FnMut(Result<ModelEvent, Fault>)) {
        self.take(data, each);
    }

    fn is_whole(&self) -> bool {
        self.is_whole()
    }

    fn finish(&mut self, each: &mut dyn FnMut(Result<ModelEvent, Fault>)) {
        if let Some(usage) = self.take_usage() {
            each(Ok(ModelEvent::Usage(usage)));
        }
        each(self.finish());
    }

    fn has_begun(&self) -> bool {
        self.has_begun()
    }
}
