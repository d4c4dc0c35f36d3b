//! The memory store as a model of the other stores: the same random operations have the same outcome on both.

use agent::journal::Record;
use agent::outside::Append;
use proptest::prelude::*;

use super::backends::{self, Backend};
use super::samples::{created, destroyed, ledger, renamed, reopened, request_id, state};
use super::{StoreUnderTest, accepted, append, begun, ended, message, timestamp};

const AGENT_IDS: [&str; 4] = ["a", "b", "c", "d"];
const REQUEST_IDS: [&str; 3] = ["x", "y", "z"];

fn any_record() -> impl Strategy<Value = Record> {
    let agent_id = proptest::sample::select(&AGENT_IDS[..]);
    let request = proptest::sample::select(&REQUEST_IDS[..]);
    prop_oneof![
        4 => (agent_id.clone(), proptest::option::of(1..8_u64)).prop_map(|(id, parent)| created(id, parent)),
        2 => agent_id.prop_map(renamed),
        2 => Just(destroyed()),
        3 => request.clone().prop_map(|request| accepted(1, request)),
        3 => request.clone().prop_map(|request| ended(1, request)),
        1 => request.prop_map(|request| reopened(1, request)),
        1 => Just(begun(1)),
        1 => Just(message("text")),
    ]
}

fn any_append() -> impl Strategy<Value = Append> {
    let states = proptest::option::of((0..3_u64).prop_map(state));
    let ledgers = proptest::collection::vec((0..8_u64, 0..6_u64), 0..2);
    (0..8_u64, 0..5_i64, proptest::collection::vec(any_record(), 0..3), states, ledgers).prop_map(
        |(agent, seconds, records, state, ledgers)| Append {
            at: timestamp(seconds),
            state,
            ledgers: ledgers.into_iter().map(|(serial, version)| (serial, ledger(version))).collect(),
            ..append(agent, "a", records)
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Append>),
    PruneTurns(i64),
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => proptest::collection::vec(any_append(), 1..3).prop_map(Step::Append),
        1 => (0..5_i64).prop_map(Step::PruneTurns),
        1 => Just(Step::Reopen),
    ]
}

async fn turns(fixture: &StoreUnderTest) -> String {
    let mut all = String::new();
    for agent in 0..8 {
        for request in REQUEST_IDS {
            let turn = fixture.store.turn(agent, request_id(request)).await;
            all.push_str(&format!("{agent} {request} {turn:?}\n"));
        }
    }
    all
}

/// Runs the steps on a backend and on the memory store, and compares all results.
async fn run_steps(backend: Box<dyn Backend>, steps: Vec<Step>) {
    let (model, mut tested) =
        (StoreUnderTest::open(backends::in_memory::new()), StoreUnderTest::open(backend));
    for step in steps {
        match step.clone() {
            Step::Append(batch) => {
                let results = (model.store.append(batch.clone()).await, tested.store.append(batch).await);
                assert_eq!(results.0, results.1, "{step:?}");
            }
            Step::PruneTurns(seconds) => {
                let before = timestamp(seconds);
                let results = (model.store.prune_turns(before).await, tested.store.prune_turns(before).await);
                assert_eq!(results.0, results.1, "{step:?}");
            }
            Step::Reopen => tested.reopen().await,
        }
    }
    assert_eq!(model.dump().await, tested.dump().await);
    assert_eq!(turns(&model).await, turns(&tested).await);
    tested.close_and_check().await;
}

macro_rules! equivalence_test {
    ($backend:ident ()) => {
        mod $backend {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig {
                    cases: 48,
                    failure_persistence: None,
                    ..ProptestConfig::default()
                })]

                #[test]
                fn behaves_like_the_memory_store(steps in proptest::collection::vec(any_step(), 1..40)) {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(run_steps(backends::$backend::new(), steps));
                }
            }
        }
    };
}
for_each_backend!(equivalence_test());
