//! The shape of the repository: layers without cycles, plain names, keys in one file, scripts with headers, short
//! files, plain prose.
//!
//! Each rule is a pure function from text to violations. One test applies it to the repository, and one shows with a
//! sample that it can fail, because a rule that checks nothing would be useless.

mod channels;
mod circles;
mod files;
mod layers;
mod mutants;
mod names;
mod prose;
mod scripts;
mod source;
