//! Replies to XREAD in a server's form.

use std::time::Duration;

/// The reply to XREAD on `usage` with these entries, followed by the reply to TIME.
pub fn xread_reply<'a, T>(entries: impl ExactSizeIterator<Item = (String, &'a [(T, T)])>, time: Duration) -> Vec<u8>
where
    T: AsRef<[u8]> + 'a,
{
    let mut reply = format!("*1\r\n*2\r\n$5\r\nusage\r\n*{}\r\n", entries.len()).into_bytes();
    for (id, fields) in entries {
        reply.extend_from_slice(b"*2\r\n");
        bulk(&mut reply, id.as_bytes());
        reply.extend_from_slice(format!("*{}\r\n", fields.len() * 2).as_bytes());
        for (name, value) in fields {
            bulk(&mut reply, name.as_ref());
            bulk(&mut reply, value.as_ref());
        }
    }
    reply.extend_from_slice(b"*2\r\n");
    bulk(&mut reply, time.as_secs().to_string().as_bytes());
    bulk(&mut reply, time.subsec_micros().to_string().as_bytes());
    reply
}

fn bulk(reply: &mut Vec<u8>, text: &[u8]) {
    reply.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    reply.extend_from_slice(text);
    reply.extend_from_slice(b"\r\n");
}
