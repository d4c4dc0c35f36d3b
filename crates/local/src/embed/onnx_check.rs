//! Structural check of an ONNX file before `rten` parses it: every length must lie inside its enclosing message. On
//! some malformed files `rten` loops forever or allocates whatever size they claim. Other damage is left to the
//! checksum that `Inspector` verifies.

/// Longest protobuf varint.
const VARINT_BYTES_MAX: u32 = 10;

// Protobuf field numbers of the submessages to check.
const GRAPH: u64 = 7;
const NODE: u64 = 1;
const INITIALIZER: u64 = 5;

/// Kind of protobuf message.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    /// A node or an initializer, whose submessages are not checked.
    Leaf,
}

/// Checks the structure of an ONNX file.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    match check_message(file, Message::Model) {
        Some(true) => Ok(()),
        Some(false) => Err("it holds no graph, so it is not an ONNX file".to_owned()),
        None => Err("it is damaged, truncated or not an ONNX file; download it again".to_owned()),
    }
}

/// Returns whether the message has a submessage of interest; `None` when it is malformed.
fn check_message(mut rest: &[u8], message: Message) -> Option<bool> {
    let mut has_submessage = false;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 => drop(varint(&mut rest)?),
            1 => drop(rest.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let content = rest.split_off(..length)?;
                if let Some(submessage) = message.submessage(key >> 3) {
                    check_message(content, submessage)?;
                    has_submessage = true;
                }
            }
            5 => drop(rest.split_off(..4)?),
            _ => return None,
        }
    }
    Some(has_submessage)
}

impl Message {
    fn submessage(self, field: u64) -> Option<Message> {
        match (self, field) {
            (Message::Model, GRAPH) => Some(Message::Graph),
            (Message::Graph, NODE | INITIALIZER) => Some(Message::Leaf),
            _ => None,
        }
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for index in 0..VARINT_BYTES_MAX {
        let byte = *rest.split_off_first()?;
        // The tenth byte holds the last bit of 64.
        if index + 1 == VARINT_BYTES_MAX && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        field.extend_from_slice(content);
        field
    }

    /// A file with a version, a graph (node, initializer, name) and a fixed-width field of each size.
    fn file() -> Vec<u8> {
        let node = field(1, &field(4, b"Add"));
        let weights = field(5, &[0x08, 0x80, 0x03]);
        let graph = field(7, &[node, weights, field(2, b"graph")].concat());
        let fixed = [0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4];
        [&[0x08, 0x07][..], &graph, &fixed].concat()
    }

    #[test]
    fn valid_file_passes() {
        assert_eq!(check(&file()), Ok(()));
    }

    #[test]
    fn truncation_is_detected_except_at_field_boundaries() {
        let file = file();
        let valid = (0..file.len()).filter(|length| check(&file[..*length]).is_ok()).collect::<Vec<_>>();
        assert_eq!(valid, [file.len() - 14, file.len() - 5]);
    }

    #[test]
    fn overlong_varints_are_rejected() {
        assert!(check(&[0xff; 64]).is_err());
        assert!(check(&[0x80; 10]).is_err());
        let longest = [&[0x08][..], &[0xff; 9], &[0x01], &file()].concat();
        assert_eq!(check(&longest), Ok(()));
        let longer = [&[0x08][..], &[0xff; 9], &[0x02], &file()].concat();
        assert!(check(&longer).is_err());
    }

    #[test]
    fn length_beyond_the_enclosing_message_is_rejected() {
        let mut file = file();
        let inside_node = 2 + 2 + 2 + 1;
        file[inside_node] += 1;
        assert!(check(&file).is_err());
    }

    #[test]
    fn file_without_a_graph_is_rejected() {
        assert!(check(b"").is_err() && check(&[0x08, 0x07]).is_err() && check(b"not a model").is_err());
    }
}
