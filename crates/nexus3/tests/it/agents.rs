//! Agents as callers see them: create, list, read, destroy, and the authorization of each.

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
