//! A model that does whatever it reads, in five channels of other people's words: files, results, answers of sub-agents,
//! system prompts and messages of children. The ceiling holds all the same: nothing beyond it happens, whatever is asked.

mod channels;
mod injections;
