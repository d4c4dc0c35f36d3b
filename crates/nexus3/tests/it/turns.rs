//! Turns: order, queue limits, cancellation, rounds, model faults, client disconnects.

mod cancelling;
mod client_disconnects;
mod concurrent_calls;
mod model_faults;
mod order;
mod queue_limits;
mod rounds;
mod stalled_turns;
