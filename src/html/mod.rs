//! What the pages of operators and of customers share: charts, relative links, the fields of forms, the pages that were
//! read last, and the environment of their templates. Knows no page. Read next: [`environment`].

pub mod chart;
pub mod environment;
pub mod fields;
pub mod href;
pub mod last_pages;
