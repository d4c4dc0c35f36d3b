//! The directory refuses a stored index whose parents form a cycle.

use super::*;

fn row(serial: Serial, parent: Option<Serial>) -> IndexRow {
    IndexRow {
        serial,
        id: AgentId::parse(&format!("a{serial}")).expect("a valid id"),
        parent,
        capability_digest: [0; 32],
        is_destroyed: false,
        is_finished: false,
    }
}

#[test]
fn parents_in_a_cycle_are_refused() {
    for (rows, damaged) in [
        (vec![row(1, Some(1))], "agent 1 ('a1'): its parent 1"),
        (vec![row(1, Some(2)), row(2, Some(1))], "agent 1 ('a1'): its parent 2"),
        (
            vec![row(1, None), row(2, Some(4)), row(3, Some(2)), row(4, Some(3))],
            "agent 2 ('a2'): its parent 4",
        ),
    ] {
        match Directory::from_rows(rows) {
            Err(StoreFault::Corrupt(why)) => assert!(why.contains(damaged), "{why}"),
            _ => panic!("{damaged}"),
        }
    }
    let directory =
        Directory::from_rows(vec![row(1, None), row(2, Some(1)), row(3, Some(2))]).expect("a tree");
    assert_eq!(directory.descendants_of(1), [2, 3]);
}
