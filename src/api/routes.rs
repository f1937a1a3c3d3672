//! The table of routes: method, path, who may call them, handler, and what no signature of a handler tells of them.
//!
//! The router and the OpenAPI document are made from this table. Read next: [`super::operation`], what the signatures
//! of handlers tell; [`super::router`].

use super::operation::{DescribedRoute, delete, get, post, put};
use super::status_doc::{
    CONTACTS_UNAVAILABLE, NO_SUCH_CONTACT, NO_SUCH_DELIVERY, OTHER_STATE, REDIS_UNAVAILABLE, StatusDoc,
    TOO_MANY_REQUESTS, UNREADABLE, VERIFIED_ALREADY, html, of_handler, ok, problem, text,
};
use super::{check, consent_links, contacts, deliveries, mutes, probes, reload, subjects, top};
use crate::outbox::DeliveryAction;
use Access::{Open, RequiredToken, TokenIfSet};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the port.
    Open,
    /// Everybody, unless a token is set: then only callers with the token.
    TokenIfSet,
    /// Only callers with the token; nobody where none is set.
    RequiredToken,
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path, with `{name}` for a part that varies.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    pub(super) endpoint: fn() -> DescribedRoute,
    /// The id of its operation, after which clients name their function.
    pub(super) operation_id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    /// A parameter of the query that the handler reads and this route refuses.
    pub(super) hidden: &'static str,
    /// The meanings of its statuses, without those that follow from the handler's signature and from `access`.
    pub(super) answers: &'static [StatusDoc],
}

const fn route(method: &'static str, path: &'static str, access: Access, endpoint: fn() -> DescribedRoute) -> Route {
    let (operation_id, tag, summary, description, hidden) = ("", "", "", "", "");
    Route { method, path, access, endpoint, operation_id, tag, summary, description, hidden, answers: &[] }
}

/// The route of an action on one delivery.
const fn action(path: &'static str, endpoint: fn() -> DescribedRoute) -> Route {
    const ANSWERS: &[StatusDoc] = &[ok("It is done."), NO_SUCH_DELIVERY, OTHER_STATE, REDIS_UNAVAILABLE];
    route("POST", path, RequiredToken, endpoint).answers(ANSWERS)
}

impl Route {
    const fn operation(self, operation_id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self { operation_id, tag, summary, ..self }
    }

    const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    const fn hiding(self, hidden: &'static str) -> Self {
        Self { hidden, ..self }
    }

    const fn answers(self, answers: &'static [StatusDoc]) -> Self {
        Self { answers, ..self }
    }
}

/// What the operations are grouped by.
pub(super) const TAGS: [(&str, &str); 5] = [
    ("checks", "For API nodes: one question for each request that they serve."),
    ("operations", "For probes and scrapers. Open to everybody who reaches the port."),
    ("contacts", "Contacts that a subject's own side adds, and their verification."),
    ("subjects", "What is set for subjects, what they used, and the alerts that were raised."),
    ("deliveries", "Notifications on their way: how they stand, and what an operator does with them."),
];

/// Every route.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", Open, || get(probes::healthz))
        .operation("healthz", "operations", "Whether the process lives")
        .answers(&[text(200, "It does.")]),
    route("GET", "/readyz", Open, || get(probes::readyz))
        .operation("readyz", "operations", "Whether the daemon can do its work")
        .answers(&[
            text(200, "Redis answers and is fit, and nothing drains."),
            text(503, "Not ready; the text says why."),
        ]),
    route("GET", "/metrics", Open, || get(probes::metrics))
        .operation("metrics", "operations", "Metrics in the text format of Prometheus")
        .answers(&[text(200, "The metrics.")]),
    route("GET", "/openapi.json", Open, || get(probes::openapi))
        .operation("openapi", "operations", "This document")
        .answers(&[ok("This document.")]),
    route("POST", "/v1/check", TokenIfSet, || post(check::check))
        .operation("check", "checks", "May this request proceed?")
        .about(
            "Judges each limit of the subject (what has been committed in its current period) and \
             the rate of its plan, in one atomic step; takes from the rate only where all admit. With `record` the \
             usage event is appended in the same step. The token is needed where `http.token` is set, and for \
             `record`.",
        )
        .answers(&[check::ALLOWED, check::REFUSED, check::NOT_JUDGED]),
    route("POST", "/v1/reload", RequiredToken, || post(reload::reload))
        .operation("reload", "operations", "Read the plans again")
        .about(
            "The configuration is judged whole and refused whole. Of a good one the plans come into effect with the \
             next batch and the next check, and the token of the API with the next request; other settings wait for \
             the next start. A file that has become empty, removes `http.token` or drops a plan which a subject names is refused too. \
             As SIGHUP.",
        )
        .answers(&[
            ok("The plans are in effect."),
            problem(
                422,
                "The configuration is refused: `detail` names every mistake. The plans before stay in \
                 effect.",
            ),
        ]),
    route("GET", "/v1/top", RequiredToken, || get(top::top))
        .operation("top", "subjects", "The subjects that used most of a metric in a period, or most of their limit")
        .about("Reads every counter of the period, so a ranking is kept for 10 seconds and shared by callers.")
        .answers(&[ok("Here it is."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects", RequiredToken, || get(subjects::list))
        .operation("listSubjects", "subjects", "The subjects for which something is set")
        .about(
            "In no order. Who is there from the first page to the last is listed; while others are added, perhaps \
             twice. A page may be shorter than `limit`, and even empty, before the list is over.",
        )
        .answers(&[ok("Here it is."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}", RequiredToken, || get(subjects::show))
        .operation("showSubject", "subjects", "What is set for a subject, with secrets masked")
        .about("What is not set comes from its plan, the default plan and the fallback contacts.")
        .answers(&[
            ok("Here it is."),
            problem(404, "Nothing is set for this subject: it has the default plan."),
            REDIS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}", RequiredToken, || put(subjects::replace))
        .operation("replaceSubject", "subjects", "Replace the settings of a subject, but for its contacts")
        .about(
            "What is left out, or is `null`, is removed and comes from the plan. Contacts stay: they have routes of \
             their own. In effect within a second.",
        )
        .answers(&[ok("The subject as it is now."), REDIS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}", RequiredToken, || delete(subjects::erase))
        .operation("eraseSubject", "subjects", "Remove everything that is stored of a subject")
        .about(
            "Settings, counts, alerts, history, refused events, deliveries, codes and limiters. Where it fails half \
             way, repeat it. Usage that is counted later begins at zero.",
        )
        .answers(&[ok("What was removed; all 0 where nothing was stored."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/history", RequiredToken, || get(subjects::history))
        .operation("history", "subjects", "What a subject used on each day")
        .about("The days whose counters are still there, and those that are archived: `history.days` back.")
        .answers(&[ok("Here it is."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/alerts", RequiredToken, || get(subjects::alerts))
        .operation("listAlerts", "subjects", "The alerts of a subject that are still kept, oldest first")
        .about("Those of every window, also those that a higher limit followed.")
        .answers(&[ok("Here it is."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/deliveries", RequiredToken, || get(deliveries::of_subject))
        .operation(
            "listSubjectDeliveries",
            "deliveries",
            "The deliveries of a subject that pass a filter, newest first",
        )
        .about("A page may have fewer deliveries than asked for, or none, although more follow.")
        .hiding("subject")
        .answers(&[ok("Here they are."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/usage", RequiredToken, || get(subjects::usage))
        .operation("usage", "subjects", "Usage and limits of a subject")
        .about(
            "In the periods that go on now, or on a day with the longer windows in which it lies. A subject for \
             which nothing is set has the default plan.",
        )
        .answers(&[ok("Here it is."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/contacts", RequiredToken, || get(contacts::list))
        .operation("listContacts", "contacts", "The contacts of a subject, with secrets masked")
        .about("Those that can be read, in their stored order. Empty for a subject without contacts of its own.")
        .answers(&[ok("The contacts."), UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts", RequiredToken, || post(contacts::add))
        .operation("addContact", "contacts", "Add a contact, which gets no alerts before it is verified")
        .about(
            "An e-mail address is sent a code and, where `http.public_url` is set, a confirm link; a webhook is sent \
             `{\"type\":\"contact.verification\",\"data\":{\"challenge\":\"...\"}}`, signed as alerts are, and is \
             verified once it answers 2xx with `{\"challenge\":\"...\"}`. A webhook whose URL is there with another \
             secret is asked to confirm the new one, and keeps the old one until then.",
        )
        .answers(&[
            of_handler(202, "Added; its address is asked."),
            contacts::NOT_ADDED,
            TOO_MANY_REQUESTS,
            CONTACTS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}", RequiredToken, || put(contacts::replace))
        .operation("replaceContact", "contacts", "Say which alerts a contact hears")
        .about("Replaces both lists; its address, its secret and everything else stay. Whoever added it.")
        .answers(&[ok("The contact as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}", RequiredToken, || delete(contacts::remove))
        .operation("removeContact", "contacts", "Remove a contact that was added here, verified or not")
        .about(
            "A webhook is removed with the secret that waits beside it. What was sent to the address verifies nothing \
             afterwards, and pending alerts to it are cancelled at their next attempt.",
        )
        .answers(&[
            of_handler(204, "Removed."),
            NO_SUCH_CONTACT,
            problem(409, "The operator wrote this contact, or what is stored for the subject can't be read."),
            CONTACTS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}/mute", RequiredToken, || put(mutes::mute_contact))
        .operation("muteContact", "contacts", "Mute a contact")
        .about("Alerts for it end `muted` and are not sent later. Requests for its verification are sent.")
        .answers(&[ok("The mute as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}/mute", RequiredToken, || delete(mutes::unmute_contact))
        .operation("unmuteContact", "contacts", "End the mute of a contact")
        .answers(&[of_handler(204, "It is not muted."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("PUT", "/v1/subjects/{id}/mute", RequiredToken, || put(mutes::mute_subject))
        .operation("muteSubject", "subjects", "Mute a subject, or one metric of it")
        .about("Usage is counted and alerts are recorded; their deliveries end `muted` and are not sent later.")
        .answers(&[ok("The mute as it is now."), REDIS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/mute", RequiredToken, || delete(mutes::unmute_subject))
        .operation("unmuteSubject", "subjects", "End the mute of a subject, or of one metric of it")
        .about("Without `metric`, mutes of single metrics stay.")
        .answers(&[of_handler(204, "It is not muted."), REDIS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/enable", RequiredToken, || post(contacts::enable))
        .operation("enableContact", "contacts", "Enable a contact that is disabled")
        .about("It gets alerts again. Repeatable: one that is not disabled stays as it is.")
        .answers(&[ok("The contact as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verification", RequiredToken, || {
        post(contacts::request_verification)
    })
    .operation("requestVerification", "contacts", "Ask the address of an unverified contact again")
    .answers(&[
        of_handler(202, "Its address is asked."),
        NO_SUCH_CONTACT,
        VERIFIED_ALREADY,
        TOO_MANY_REQUESTS,
        CONTACTS_UNAVAILABLE,
    ]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verify", RequiredToken, || post(contacts::verify))
        .operation("verifyContact", "contacts", "Submit the code that was sent to a contact")
        .answers(&[
            ok("It was the right one: the contact is verified."),
            problem(
                403,
                "Not the code that was sent last, or expired, or the sixth that was tried. Or the \
                 route is off until the operator sets `http.token`.",
            ),
            NO_SUCH_CONTACT,
            VERIFIED_ALREADY,
            CONTACTS_UNAVAILABLE,
        ]),
    route("GET", "/v1/deliveries", RequiredToken, || get(deliveries::list))
        .operation("listDeliveries", "deliveries", "The deliveries that pass a filter, newest first within a partition")
        .about("A page may have fewer deliveries than asked for, or none, although more follow.")
        .answers(&[ok("Here they are."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/deliveries/{id}", RequiredToken, || get(deliveries::show))
        .operation(
            "showDelivery",
            "deliveries",
            "One delivery: to whom, about what, every attempt, and why it stands as it does",
        )
        .answers(&[ok("Here it is."), NO_SUCH_DELIVERY, REDIS_UNAVAILABLE]),
    action("/v1/deliveries/{id}/replay", || post(|api, id| deliveries::act(api, id, DeliveryAction::Replay)))
        .operation("replayDelivery", "deliveries", "Make a dead delivery pending and due again, under the same id"),
    action("/v1/deliveries/{id}/retry", || post(|api, id| deliveries::act(api, id, DeliveryAction::Retry))).operation(
        "retryDelivery",
        "deliveries",
        "Make a pending delivery due now, also behind an open circuit; replay a dead one",
    ),
    action("/v1/deliveries/{id}/cancel", || post(|api, id| deliveries::act(api, id, DeliveryAction::Cancel)))
        .operation("cancelDelivery", "deliveries", "End a pending delivery without sending it"),
    action("/v1/deliveries/{id}/discard", || post(|api, id| deliveries::act(api, id, DeliveryAction::Discard)))
        .operation("discardDelivery", "deliveries", "Acknowledge a dead delivery: nothing counts it any more"),
    // The token in the path is the secret that these need.
    route("GET", "/confirm/{token}", Open, || get(consent_links::show_confirm))
        .operation("confirmPage", "contacts", "The page behind a confirm link, for people; changes nothing")
        .answers(&[html(200, "A page with a button that posts.")]),
    route("POST", "/confirm/{token}", Open, || post(consent_links::confirm))
        .operation("confirm", "contacts", "Use a confirm link up, which verifies its contact")
        .answers(&[
            html(200, "The contact is verified, by this or a moment before."),
            html(410, "Used already, run out, or never there."),
            html(503, "Redis does not answer: try again, the link is as good as before."),
        ]),
    route("GET", "/unsubscribe/{token}", Open, || get(consent_links::show_unsubscribe))
        .operation("unsubscribePage", "contacts", "The page behind an unsubscribe link, for people; changes nothing")
        .answers(&[html(200, "A page with a button that posts.")]),
    route("POST", "/unsubscribe/{token}", Open, || post(consent_links::unsubscribe))
        .operation(
            "unsubscribe",
            "contacts",
            "Mute the contact of an unsubscribe link; what a mail provider posts (RFC 8058)",
        )
        .answers(&[
            html(200, "The contact is muted, by this or an earlier request."),
            html(410, "Not made here, or its contact is gone."),
            html(503, "Redis does not answer: try again, the link is as good as before."),
        ]),
];

// A route that the document would not explain does not compile.
const _: () = {
    let mut at = 0;
    while at < ROUTES.len() {
        let Route { operation_id, summary, answers, .. } = &ROUTES[at];
        assert!(!operation_id.is_empty() && !summary.is_empty() && !answers.is_empty());
        at += 1;
    }
};
