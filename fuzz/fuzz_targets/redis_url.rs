//! Any text in place of `redis.url`. Nothing may panic, and no error may repeat a part of the URL: it may hold a
//! password.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quotabell::redis_client::redis_url;

const PASSWORD: &str = "hunter2-hunter2";

fuzz_target!(|text: &str| {
    // An asterisk becomes the password, so that it stands in every part of a URL.
    if let Err(error) = redis_url::parse(&text.replace('*', PASSWORD)) {
        assert!(!error.to_string().contains(PASSWORD), "{error}");
    }
});
