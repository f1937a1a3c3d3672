//! Mails that are no alert. Pure.

use super::templates::Rendered;
use crate::channels::notice_text::NoticeText;

/// The same text in both parts.
pub(super) fn rendered(NoticeText { heading, text }: NoticeText) -> Rendered {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let pre = format!("<pre style=\"white-space: pre-wrap\">\n{escaped}</pre>");
    Rendered { subject_line: heading, text, html: format!("<!doctype html>\n<meta charset=\"utf-8\">\n{pre}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver said must not become a part of the page.
    #[test]
    fn a_notice_is_escaped() {
        let notice = NoticeText { heading: "alice".to_owned(), text: "HTTP <410> & more".to_owned() };
        let mail = rendered(notice);
        assert!(mail.html.contains("HTTP &lt;410&gt; &amp; more") && !mail.html.contains("<410>"), "{}", mail.html);
        assert_eq!((mail.subject_line.as_str(), mail.text.as_str()), ("alice", "HTTP <410> & more"));
    }
}
