//! Pictures in the words of the wire.

use agent::{Fault, Image, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nexus3_protocol::methods::{ImageParam, ImageView, SnapshotImage};
use runtime::AgentHandle;

use crate::methods::agents::invalid;

/// The most pictures of one message.
const IMAGES_MAX: usize = 20;

/// The most bytes of all pictures of one message. In base64 they are a third more, and no provider takes questions of more
/// than some 30 MB.
const IMAGES_BYTES_MAX: usize = 20 << 20;

/// The pictures that a send brings or names.
pub(crate) async fn load_images(agent: &AgentHandle, params: Vec<ImageParam>) -> Result<Vec<Image>, Fault> {
    if params.len() > IMAGES_MAX {
        return Err(invalid(&format!("images: at most {IMAGES_MAX}, got: {}", params.len())));
    }
    let (mut images, mut bytes) = (Vec::with_capacity(params.len()), 0);
    for (place, param) in params.into_iter().enumerate() {
        let ImageParam { data, path, media_type } = param;
        let image = match (data, path) {
            (Some(data), None) => {
                decode_image(&data).map_err(|wrong| image_fault(place, &format!(".data {wrong}")))?
            }
            (None, Some(path)) => agent.read_image(&path).await.map_err(|mut fault| {
                fault.public = format!("images[{place}].path: {}", fault.public).into();
                fault
            })?,
            _ => return Err(image_fault(place, " must have either data or path")),
        };
        if let Some(given) = media_type.filter(|given| *given != image.media_type) {
            return Err(image_fault(
                place,
                &format!(".media_type is '{given}', but the bytes are {}", image.media_type),
            ));
        }
        bytes += image.data.len();
        if bytes > IMAGES_BYTES_MAX {
            return Err(invalid(&format!("images: at most {IMAGES_BYTES_MAX} bytes together")));
        }
        images.push(image);
    }
    Ok(images)
}

fn image_fault(place: usize, wrong: &str) -> Fault {
    invalid(&format!("images[{place}]{wrong}"))
}

/// What is wrong follows the name of the field.
fn decode_image(data: &str) -> Result<Image, String> {
    let bytes = BASE64.decode(data).map_err(|fault| format!("is not base64: {fault}"))?;
    if bytes.len() > Image::BYTES_MAX {
        return Err(format!("has {} bytes, at most {} are taken", bytes.len(), Image::BYTES_MAX));
    }
    Image::parse(bytes).map_err(|wrong| wrong.to_string())
}

/// The pictures of a message, without their bytes.
pub(crate) fn image_views(message: &Message) -> Vec<ImageView> {
    let view =
        |image: &Image| ImageView { media_type: image.media_type.clone(), bytes: image.data.len() as u64 };
    message.images.iter().map(view).collect()
}

pub(crate) fn encode_images(message: &Message) -> Vec<SnapshotImage> {
    let write = |image: &Image| SnapshotImage {
        media_type: image.media_type.clone(),
        data: BASE64.encode(&image.data),
    };
    message.images.iter().map(write).collect()
}

/// What is wrong follows the message's place in the document.
pub(crate) fn decode_images(images: &[SnapshotImage]) -> Result<Vec<Image>, String> {
    let read = |(place, image): (usize, &SnapshotImage)| {
        decode_image(&image.data).map_err(|wrong| format!(".images[{place}].data {wrong}"))
    };
    images.iter().enumerate().map(read).collect()
}
