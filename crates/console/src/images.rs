//! Images of a message, from local files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nexus3_protocol::methods::ImageParam;

use crate::commands::absolute_path;
use crate::connection::Failure;

/// Maximum total size of images inside a request, which leaves space for a long text. The daemon reads further images
/// by path, if the agent may read them.
const INLINE_BYTES_MAX: usize = 600 << 10;

/// Maximum size of an image that the daemon accepts.
const IMAGE_BYTES_MAX: u64 = 5 << 20;

/// Encodes small files in the request, and passes large ones by path.
pub(crate) fn load_images(files: Vec<String>) -> Result<Vec<ImageParam>, Failure> {
    let mut inline_left = INLINE_BYTES_MAX;
    let mut images = Vec::with_capacity(files.len());
    for file in files {
        let unreadable = |why: String| Failure::Message(format!("cannot read image {file}: {why}"));
        // Rejects pipes: opening one blocks until a writer opens it, and reading may never end.
        let metadata = std::fs::metadata(&file).map_err(|fault| unreadable(fault.to_string()))?;
        if !metadata.is_file() {
            return Err(unreadable("it is not a regular file".to_owned()));
        }
        if metadata.len() > IMAGE_BYTES_MAX {
            return Err(unreadable(format!(
                "it has {} bytes, the maximum is {IMAGE_BYTES_MAX}",
                metadata.len()
            )));
        }
        let bytes = std::fs::read(&file).map_err(|fault| unreadable(fault.to_string()))?;
        images.push(match inline_left.checked_sub(bytes.len()) {
            Some(remaining) => {
                inline_left = remaining;
                ImageParam { data: Some(BASE64.encode(bytes)), ..ImageParam::default() }
            }
            None => ImageParam { path: Some(absolute_path(file)?), ..ImageParam::default() },
        });
    }
    Ok(images)
}
