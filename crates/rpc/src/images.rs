//! Images of messages: loading and validating parameters, and conversion to protocol types.

use agent::{Fault, Image, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nexus3_protocol::methods::{ImageParam, ImageView, SnapshotImage};
use runtime::AgentHandle;

use crate::methods::agents::invalid;

/// Maximum number of images in one message.
const IMAGES_MAX: usize = 20;

/// Maximum total size of the images in one message. Base64 adds a third, and no provider accepts requests over about
/// 30 MB.
const IMAGES_BYTES_MAX: usize = 20 << 20;

/// Loads the images of a `send`, from inline data or from files.
pub(crate) async fn load_images(agent: &AgentHandle, params: Vec<ImageParam>) -> Result<Vec<Image>, Fault> {
    if params.len() > IMAGES_MAX {
        return Err(invalid(&format!("images: at most {IMAGES_MAX}, got: {}", params.len())));
    }
    let (mut images, mut bytes) = (Vec::with_capacity(params.len()), 0);
    for (index, param) in params.into_iter().enumerate() {
        let ImageParam { data, path, media_type } = param;
        let image = match (data, path) {
            (Some(data), None) => {
                decode_image(&data).map_err(|why| image_fault(index, &format!(".data {why}")))?
            }
            (None, Some(path)) => agent.read_image(&path).await.map_err(|mut fault| {
                fault.public = format!("images[{index}].path: {}", fault.public).into();
                fault
            })?,
            _ => return Err(image_fault(index, " must have either data or path")),
        };
        if let Some(declared) = media_type.filter(|declared| *declared != image.media_type) {
            let why = format!(".media_type is '{declared}', but the bytes are {}", image.media_type);
            return Err(image_fault(index, &why));
        }
        bytes += image.data.len();
        if bytes > IMAGES_BYTES_MAX {
            return Err(invalid(&format!("images: at most {IMAGES_BYTES_MAX} bytes together")));
        }
        images.push(image);
    }
    Ok(images)
}

fn image_fault(index: usize, why: &str) -> Fault {
    invalid(&format!("images[{index}]{why}"))
}

/// Decodes and validates an image. The error text continues after the field name.
fn decode_image(data: &str) -> Result<Image, String> {
    let bytes = BASE64.decode(data).map_err(|fault| format!("is not base64: {fault}"))?;
    if bytes.len() > Image::BYTES_MAX {
        return Err(format!("has {} bytes, but at most {} are allowed", bytes.len(), Image::BYTES_MAX));
    }
    Image::parse(bytes).map_err(|fault| fault.to_string())
}

/// Returns the images of a message without their bytes.
pub(crate) fn image_views(message: &Message) -> Vec<ImageView> {
    let view =
        |image: &Image| ImageView { media_type: image.media_type.clone(), bytes: image.data.len() as u64 };
    message.images.iter().map(view).collect()
}

pub(crate) fn encode_images(message: &Message) -> Vec<SnapshotImage> {
    let encode = |image: &Image| SnapshotImage {
        media_type: image.media_type.clone(),
        data: BASE64.encode(&image.data),
    };
    message.images.iter().map(encode).collect()
}

/// Decodes the images of a snapshot message. The error text continues after the message's path in the document.
pub(crate) fn decode_images(images: &[SnapshotImage]) -> Result<Vec<Image>, String> {
    let decode = |(index, image): (usize, &SnapshotImage)| {
        decode_image(&image.data).map_err(|why| format!(".images[{index}].data {why}"))
    };
    images.iter().enumerate().map(decode).collect()
}
