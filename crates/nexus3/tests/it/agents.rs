//! What agents are to their callers: made, found, read, ended, and who may do so.

mod capabilities;
mod creating;
mod destroying;
mod finishing;
mod identity;
mod listing;
mod main_agent;
mod notifications;
mod reads;
mod sends;
