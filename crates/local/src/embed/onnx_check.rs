//! A look at an ONNX file before it is read: every length lies inside what holds it. The reader of `rten` runs forever on some
//! files that do not keep to this, and asks for as much memory as they say. What lies deeper is the checksum's matter.

/// The longest number of the format.
const VARINT_BYTES_MAX: u32 = 10;

/// Numbers of the fields that hold further messages.
const GRAPH: u64 = 7;
const NODE: u64 = 1;
const INITIALIZER: u64 = 5;

/// Which message is looked at.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    /// A node or weights: nothing below is looked at.
    Leaf,
}

/// Says what is wrong with the file, if anything is.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    match check_message(file, Message::Model) {
        Some(true) => Ok(()),
        Some(false) => Err("it holds no graph, so it is no ONNX file".to_owned()),
        None => Err("it is damaged, cut short, or no ONNX file".to_owned()),
    }
}

/// Whether a message below was found; none when the message is malformed.
fn check_message(mut rest: &[u8], message: Message) -> Option<bool> {
    let mut has_below = false;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 => drop(varint(&mut rest)?),
            1 => drop(rest.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let inside = rest.split_off(..length)?;
                if let Some(below) = message.submessage(key >> 3) {
                    check_message(inside, below)?;
                    has_below = true;
                }
            }
            5 => drop(rest.split_off(..4)?),
            _ => return None,
        }
    }
    Some(has_below)
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
    for place in 0..VARINT_BYTES_MAX {
        let byte = *rest.split_off_first()?;
        // The tenth byte has room for one bit.
        if place + 1 == VARINT_BYTES_MAX && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
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

    /// A version, a graph with a node, a weight and a name, and a fixed number of each width.
    fn file() -> Vec<u8> {
        let node = field(1, &field(4, b"Add"));
        let weights = field(5, &[0x08, 0x80, 0x03]);
        let graph = field(7, &[node, weights, field(2, b"graph")].concat());
        let fixed = [0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4];
        [&[0x08, 0x07][..], &graph, &fixed].concat()
    }

    #[test]
    fn a_sound_file_passes() {
        assert_eq!(check(&file()), Ok(()));
    }

    #[test]
    fn a_file_that_is_cut_short_is_found_out_unless_only_whole_fields_are_missing() {
        let file = file();
        let sound = (0..file.len()).filter(|length| check(&file[..*length]).is_ok()).collect::<Vec<_>>();
        assert_eq!(sound, [file.len() - 14, file.len() - 5]);
    }

    #[test]
    fn numbers_that_are_too_long_are_found_out() {
        assert!(check(&[0xff; 64]).is_err());
        assert!(check(&[0x80; 10]).is_err());
        let longest = [&[0x08][..], &[0xff; 9], &[0x01], &file()].concat();
        assert_eq!(check(&longest), Ok(()));
        let longer = [&[0x08][..], &[0xff; 9], &[0x02], &file()].concat();
        assert!(check(&longer).is_err());
    }

    #[test]
    fn lengths_that_reach_out_of_their_message_are_found_out() {
        let mut file = file();
        let inside_node = 2 + 2 + 2 + 1;
        file[inside_node] += 1;
        assert!(check(&file).is_err());
    }

    #[test]
    fn a_file_without_a_graph_is_no_model() {
        assert!(check(b"").is_err() && check(&[0x08, 0x07]).is_err() && check(b"not a model").is_err());
    }
}
