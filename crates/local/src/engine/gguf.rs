//! GGUF parser: the metadata of a file and where each tensor's bytes are. Every length is checked against the file
//! before anything is allocated. `format` decodes the tensors.

use std::collections::HashMap;

use super::format::Format;

/// Why a model file is rejected, as text for the user.
pub(crate) type ModelFileError = String;

/// A parsed GGUF header that borrows the file's bytes.
#[derive(Debug)]
pub(crate) struct Gguf<'a> {
    metadata: HashMap<&'a str, MetadataValue<'a>>,
    tensors: HashMap<&'a str, Tensor<'a>>,
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetadataValue<'a> {
    Integer(i64),
    Float(f64),
    Bool(bool),
    Text(&'a str),
    TextArray(Vec<&'a str>),
    IntegerArray(Vec<i64>),
    /// An array of floats or booleans, which this crate does not use.
    Skipped,
}

/// A tensor in the file's bytes: `rows` × `columns` numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) bytes: &'a [u8],
}

const TENSORS_MAX: u64 = 65_536;
const METADATA_ENTRIES_MAX: u64 = 65_536;
const ARRAY_ELEMENTS_MAX: u64 = 4_000_000;
const DIMENSIONS_MAX: u32 = 4;

impl<'a> Gguf<'a> {
    /// Parses the header of `bytes`, a whole file.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, ModelFileError> {
        let (metadata, tensor_count, mut reader) = read_header(bytes)?;
        let descriptors =
            (0..tensor_count).map(|_| reader.tensor_descriptor()).collect::<Result<Vec<_>, _>>()?;
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(MetadataValue::Integer(value)) => usize::try_from(*value)
                .ok()
                .filter(|value| value.is_power_of_two() && (4..=65_536).contains(value))
                .ok_or_else(|| format!("its alignment {value} is not a power of two from 4 to 65536"))?,
            Some(_) => return Err("its alignment is not a number".to_owned()),
        };
        let start = reader.offset.next_multiple_of(alignment);
        let mut tensors = HashMap::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let (name, tensor) = descriptor.resolve(bytes, start)?;
            tensors.insert(name, tensor);
        }
        Ok(Self { metadata, tensors })
    }

    /// Parses the metadata alone; `bytes` may end after it.
    pub(crate) fn read_metadata(bytes: &'a [u8]) -> Result<Self, ModelFileError> {
        let (metadata, ..) = read_header(bytes)?;
        Ok(Self { metadata, tensors: HashMap::new() })
    }

    pub(crate) fn metadata_value(&self, key: &str) -> Option<&MetadataValue<'a>> {
        self.metadata.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        match self.metadata.get(key) {
            Some(MetadataValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text_array(&self, key: &str) -> Option<&[&'a str]> {
        match self.metadata.get(key) {
            Some(MetadataValue::TextArray(texts)) => Some(texts),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, key: &str) -> Option<usize> {
        match self.metadata.get(key) {
            Some(MetadataValue::Integer(value)) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(crate) fn float(&self, key: &str) -> Option<f64> {
        match self.metadata.get(key) {
            Some(MetadataValue::Float(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the tensor `name`, which must be `rows` × `columns`.
    pub(crate) fn tensor(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Tensor<'a>, ModelFileError> {
        let tensor = self.tensors.get(name).ok_or_else(|| format!("tensor {name} is missing"))?;
        if (tensor.rows, tensor.columns) != (rows, columns) {
            return Err(format!(
                "tensor {name} is {} by {}, expected {rows} by {columns}",
                tensor.rows, tensor.columns
            ));
        }
        Ok(*tensor)
    }
}

/// Parses the header up to the tensor descriptors: metadata, tensor count, and a reader at the descriptors.
fn read_header(bytes: &[u8]) -> Result<(HashMap<&str, MetadataValue<'_>>, u64, Reader<'_>), ModelFileError> {
    let mut reader = Reader { bytes, offset: 0 };
    if reader.take(4)? != b"GGUF" {
        return Err("it is not a GGUF file".to_owned());
    }
    let version = reader.u32()?;
    if !(2..=3).contains(&version) {
        return Err(format!("GGUF version {version} is not supported; use version 2 or 3"));
    }
    let tensor_count = reader.count(TENSORS_MAX, "tensors")?;
    let entry_count = reader.count(METADATA_ENTRIES_MAX, "metadata entries")?;
    let metadata = read_metadata_entries(&mut reader, entry_count)?;
    Ok((metadata, tensor_count, reader))
}

fn read_metadata_entries<'a>(
    reader: &mut Reader<'a>,
    count: u64,
) -> Result<HashMap<&'a str, MetadataValue<'a>>, ModelFileError> {
    let mut metadata = HashMap::new();
    for _ in 0..count {
        let key = reader.text()?;
        let kind = reader.u32()?;
        metadata.insert(key, reader.value(kind)?);
    }
    Ok(metadata)
}

struct TensorDescriptor<'a> {
    name: &'a str,
    dimensions: Vec<u64>,
    format: u32,
    offset: u64,
}

impl<'a> TensorDescriptor<'a> {
    fn resolve(&self, bytes: &'a [u8], start: usize) -> Result<(&'a str, Tensor<'a>), ModelFileError> {
        let name = self.name;
        let format = Format::from_ggml_type(self.format)
            .ok_or_else(|| format!("tensor {name} has the unsupported ggml type {}", self.format))?;
        let invalid_size = || format!("tensor {name} has an invalid size");
        let columns = self.dimensions.first().copied().unwrap_or(1);
        let rows = self
            .dimensions
            .iter()
            .skip(1)
            .try_fold(1u64, |product, dimension| product.checked_mul(*dimension))
            .ok_or_else(invalid_size)?;
        let columns = usize::try_from(columns).map_err(|_| invalid_size())?;
        let rows = usize::try_from(rows).map_err(|_| invalid_size())?;
        let count = rows.checked_mul(columns).ok_or_else(invalid_size)?;
        if count == 0 || !columns.is_multiple_of(format.block_numbers()) {
            return Err(invalid_size());
        }
        let length =
            (count / format.block_numbers()).checked_mul(format.block_bytes()).ok_or_else(invalid_size)?;
        let offset = usize::try_from(self.offset).map_err(|_| invalid_size())?;
        let from = start.checked_add(offset).ok_or_else(invalid_size)?;
        let to = from.checked_add(length).ok_or_else(invalid_size)?;
        if !from.is_multiple_of(4) {
            return Err(format!("tensor {name} is not aligned"));
        }
        let bytes = bytes.get(from..to).ok_or_else(|| {
            format!("tensor {name} ends beyond the file: it is truncated; download it again")
        })?;
        Ok((name, Tensor { format, rows, columns, bytes }))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ModelFileError> {
        let end = self.offset.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.offset..end));
        let taken = taken.ok_or_else(|| "its header is truncated; download it again".to_owned())?;
        self.offset += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelFileError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, ModelFileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, ModelFileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn count(&mut self, max: u64, what: &str) -> Result<u64, ModelFileError> {
        let count = self.u64()?;
        if count > max {
            return Err(format!("it claims {count} {what}; at most {max} are supported"));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<&'a str, ModelFileError> {
        let length = usize::try_from(self.u64()?).map_err(|_| "a string has an invalid length".to_owned())?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| "a string in its header is not UTF-8".to_owned())
    }

    fn tensor_descriptor(&mut self) -> Result<TensorDescriptor<'a>, ModelFileError> {
        let name = self.text()?;
        let dimension_count = self.u32()?;
        if dimension_count > DIMENSIONS_MAX {
            return Err(format!(
                "tensor {name} has {dimension_count} dimensions; at most {DIMENSIONS_MAX} are supported"
            ));
        }
        let dimensions = (0..dimension_count).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
        Ok(TensorDescriptor { name, dimensions, format: self.u32()?, offset: self.u64()? })
    }

    fn value(&mut self, kind: u32) -> Result<MetadataValue<'a>, ModelFileError> {
        match kind {
            8 => Ok(MetadataValue::Text(self.text()?)),
            9 => self.value_array(),
            _ => self.scalar(kind),
        }
    }

    fn scalar(&mut self, kind: u32) -> Result<MetadataValue<'a>, ModelFileError> {
        Ok(match kind {
            0 => MetadataValue::Integer(i64::from(u8::from_le_bytes(self.array()?))),
            1 => MetadataValue::Integer(i64::from(i8::from_le_bytes(self.array()?))),
            2 => MetadataValue::Integer(i64::from(u16::from_le_bytes(self.array()?))),
            3 => MetadataValue::Integer(i64::from(i16::from_le_bytes(self.array()?))),
            4 => MetadataValue::Integer(i64::from(self.u32()?)),
            5 => MetadataValue::Integer(i64::from(i32::from_le_bytes(self.array()?))),
            6 => MetadataValue::Float(f64::from(f32::from_le_bytes(self.array()?))),
            7 => MetadataValue::Bool(self.array::<1>()? != [0]),
            10 => MetadataValue::Integer(i64::try_from(self.u64()?).unwrap_or(i64::MAX)),
            11 => MetadataValue::Integer(i64::from_le_bytes(self.array()?)),
            12 => MetadataValue::Float(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("a metadata entry has the unknown type {other}")),
        })
    }

    fn value_array(&mut self) -> Result<MetadataValue<'a>, ModelFileError> {
        let kind = self.u32()?;
        let count = self.count(ARRAY_ELEMENTS_MAX, "array elements")?;
        match kind {
            8 => Ok(MetadataValue::TextArray((0..count).map(|_| self.text()).collect::<Result<_, _>>()?)),
            9 => Err("nested arrays in its metadata are not supported".to_owned()),
            0..=5 | 10 | 11 => {
                let mut integers = Vec::new();
                for _ in 0..count {
                    if let MetadataValue::Integer(integer) = self.scalar(kind)? {
                        integers.push(integer);
                    }
                }
                Ok(MetadataValue::IntegerArray(integers))
            }
            _ => {
                for _ in 0..count {
                    self.scalar(kind)?;
                }
                Ok(MetadataValue::Skipped)
            }
        }
    }
}

#[cfg(test)]
mod tests;
