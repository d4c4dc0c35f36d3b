//! Pictures for a message, from files of whoever runs the command.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nexus3_protocol::methods::ImageParam;

use crate::commands::absolute_path;
use crate::connection::Failure;

/// What fits into a request beside a long text, in base64. What is larger is read by the daemon, if the agent may read
/// it.
const INLINE_BYTES_MAX: usize = 600 << 10;

/// What the daemon takes of one picture.
const IMAGE_BYTES_MAX: u64 = 5 << 20;

/// Small files go with the message; of large ones the daemon is told the path.
pub(crate) fn load_images(files: Vec<String>) -> Result<Vec<ImageParam>, Failure> {
    let mut left = INLINE_BYTES_MAX;
    let mut images = Vec::with_capacity(files.len());
    for file in files {
        let cannot = |why: String| Failure::Message(format!("the image {file} cannot be read: {why}"));
        // A pipe may never end, and to open one waits for whoever writes to it.
        let facts = std::fs::metadata(&file).map_err(|fault| cannot(fault.to_string()))?;
        if !facts.is_file() {
            return Err(cannot("it is not a regular file".to_owned()));
        }
        if facts.len() > IMAGE_BYTES_MAX {
            return Err(cannot(format!("it has {} bytes, at most {IMAGE_BYTES_MAX} are taken", facts.len())));
        }
        let bytes = std::fs::read(&file).map_err(|fault| cannot(fault.to_string()))?;
        images.push(match left.checked_sub(bytes.len()) {
            Some(rest) => {
                left = rest;
                ImageParam { data: Some(BASE64.encode(bytes)), ..ImageParam::default() }
            }
            None => ImageParam { path: Some(absolute_path(file)?), ..ImageParam::default() },
        });
    }
    Ok(images)
}
