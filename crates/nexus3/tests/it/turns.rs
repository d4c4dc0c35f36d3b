//! Turns: their order, their bounds, how they are cancelled, what tools and faults of the model do to them.

mod queue_limits;
mod cancelling;
mod crowd;
mod departures;
mod model_faults;
mod order;
mod rounds;
mod storm;
