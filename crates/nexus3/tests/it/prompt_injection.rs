//! Prompt injection: a model that follows every instruction it reads, in five channels of untrusted text: files, tool
//! results, responses of sub-agents, system prompts and messages of children; and a model that is hostile itself. No
//! call has an effect beyond the agent's ceiling.

mod channels;
mod hostile_agent;
mod hostile_calls;
mod injections;
