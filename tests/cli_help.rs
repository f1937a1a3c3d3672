//! The help of every verb, as people read it.

mod support;

use support::binary::quotabell;

/// Every verb, and every verb within one.
const VERBS: [&str; 22] = [
    "",
    "run",
    "demo",
    "check-config",
    "emit",
    "subject",
    "subject set",
    "subject show",
    "subject list",
    "subject remove",
    "subject import",
    "usage",
    "alerts",
    "deliveries",
    "deliveries list",
    "deliveries show",
    "deliveries replay",
    "refused list",
    "send-test",
    "preview",
    "completions",
    "man",
];

fn help(verb: &str) -> String {
    quotabell(verb.split_whitespace().chain(["--help"])).run().expect_done()
}

/// Help is the documentation that is always at hand: a change of it must be seen.
#[test]
fn every_verb_explains_itself() {
    for verb in VERBS {
        insta::assert_snapshot!(format!("help_{}", verb.replace([' ', '-'], "_")), help(verb));
    }
}

/// An option is learnt from an example.
#[test]
fn every_verb_that_does_something_has_examples() {
    for verb in VERBS.iter().filter(|verb| !["subject", "deliveries"].contains(verb)) {
        assert!(help(verb).contains("Examples:\n  quotabell") || help(verb).contains("Examples:\n  printf"), "{verb}");
    }
}

/// Every verb must take the configuration's name, also behind it.
#[test]
fn every_verb_takes_the_configuration() {
    for verb in VERBS {
        assert!(help(verb).contains("--config <FILE>"), "{verb}");
    }
}

/// Packagers ask for these.
#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(quotabell(["completions", shell]).run().expect_done().contains("check-config"), "{shell}");
    }
    let page = quotabell(["man"]).run().expect_done();
    assert!(page.contains(".TH quotabell 1") && page.contains("check\\-config"), "{page}");
    let page = quotabell(["man", "subject", "set"]).run().expect_done();
    assert!(page.contains(".TH quotabell-subject-set 1") && page.contains("webhook\\-secret"), "{page}");
}
