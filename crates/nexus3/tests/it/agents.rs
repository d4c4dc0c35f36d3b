//! What agents are to their callers: made, found, read, ended, and who may do so.

mod agent_shutdown;
mod capabilities;
mod create;
mod destroy;
mod identity;
mod list;
mod main_agent;
mod notifications;
mod reads;
mod sends;
