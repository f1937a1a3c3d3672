//! The shape of the repository: layers without circles, plain names, keys in one file, scripts with headers, short
//! files.
//!
//! Each rule is a pure function from text to violations. One test holds it against the repository, one shows on a
//! sample that it can fail: a rule that finds nothing because it looks at nothing would be worse than none.

mod channels;
mod circles;
mod files;
mod layers;
mod mutants;
mod names;
mod prose;
mod scripts;
mod source;
