//! Turns: their order, their bounds, how they are cancelled, what tools and faults of the model do to them.

mod cancelling;
mod client_disconnects;
mod concurrent_calls;
mod model_faults;
mod order;
mod queue_limits;
mod rounds;
mod stalled_turns;
