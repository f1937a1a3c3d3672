//! The table of routes: method, path, access, handler, and the texts of the OpenAPI document.
//!
//! The router and the OpenAPI document are made from this table. Read next: [`super::operation`], which derives
//! parameters and bodies from the signatures of handlers; [`super::router`].

use super::ingestion::handler as ingestion;
use super::operation::{DescribedRoute, any, delete, get, post, put};
use super::route::route;
pub use super::route::{Access, Route};
use super::scope::Scope;
use super::status_doc::{
    AUTHORIZE_FORBIDDEN, CONTACTS_UNAVAILABLE, ETAG, NO_SUCH_CONTACT, NO_SUCH_DELIVERY, OTHER_STATE, REDIS_UNAVAILABLE,
    StatusDoc, TOO_MANY_REQUESTS, UNREADABLE, VERIFIED_ALREADY, html, json_lines, of_handler, ok, problem, text,
};
use super::{
    actions, alert_log, authorize, check, consent_links, contacts, deliveries, grants, mutes, overview, portal, probes,
    reload, subjects, top,
};
use crate::outbox::DeliveryAction;
use Access::Open;

const EVENTS: Access = Access::Needs(Scope::EventsWrite);
const READ: Access = Access::Needs(Scope::Read);
const SUBJECTS: Access = Access::Needs(Scope::SubjectsWrite);
const DELIVERIES: Access = Access::Needs(Scope::DeliveriesWrite);
const ADMIN: Access = Access::Needs(Scope::Admin);

/// The route of an action on one delivery.
const fn action(path: &'static str, endpoint: fn() -> DescribedRoute) -> Route {
    const ANSWERS: &[StatusDoc] = &[ok("Done."), NO_SUCH_DELIVERY, OTHER_STATE, REDIS_UNAVAILABLE];
    route("POST", path, DELIVERIES, endpoint).answers(ANSWERS)
}

/// A route that shows the state of everything, or a list of it.
const fn observed(path: &'static str, endpoint: fn() -> DescribedRoute) -> Route {
    const ANSWERS: &[StatusDoc] = &[ok("The result."), REDIS_UNAVAILABLE];
    route("GET", path, READ, endpoint).answers(ANSWERS)
}

/// A route that takes events.
const fn events(path: &'static str, answers: &'static [StatusDoc]) -> Route {
    route("POST", path, EVENTS, || post(ingestion::events)).answers(answers)
}

/// Every route.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", Open, || get(probes::healthz))
        .operation("healthz", "operations", "Check that the process is alive")
        .answers(&[text(200, "It is alive.")]),
    route("GET", "/readyz", Open, || get(probes::readyz))
        .operation("readyz", "operations", "Check that the daemon can work")
        .answers(&[
            text(200, "Redis answers and is fit, and the daemon does not drain."),
            text(503, "Not ready; the text says why."),
        ]),
    route("GET", "/metrics", Open, || get(probes::metrics))
        .operation("metrics", "operations", "Get metrics in the text format of Prometheus")
        .answers(&[text(200, "The metrics.")]),
    route("GET", "/openapi.json", Open, || get(probes::openapi))
        .operation("openapi", "operations", "Get this document")
        .answers(&[ok("This document.")]),
    route("POST", "/v1/check", Access::IfSet(Scope::Check), || post(check::check))
        .operation("check", "checks", "Decide whether a request may proceed")
        .about(
            "Judges each limit of the subject (by the committed count of its current period) and the rate of its plan \
             in one atomic step. Takes from the rate only if all of them admit the request. With `record`, appends \
             the usage event in the same step, which needs the scope `events:write`. Without any token set, everybody \
             may ask, and nobody may record.",
        )
        .answers(&[check::ALLOWED, check::REFUSED, check::NOT_JUDGED]),
    route("GET", "/v1/authorize", Access::IfSet(Scope::Check), || any(authorize::authorize))
        .operation("authorize", "checks", "Decide whether a gateway's request may proceed")
        .about(
            "The decision of `/v1/check` without bodies, for gateways that send a request before each request. Takes \
             every method. Input comes from the headers `X-Quota-Subject` (or `check.subject_header`), \
             `X-Quota-Metric`, `X-Quota-Units`, `X-Quota-Id` and `X-Quota-Record`, or from the query. The gateway \
             must overwrite these headers of its clients.",
        )
        .answers(&[check::ALLOWED, AUTHORIZE_FORBIDDEN, check::REFUSED, check::NOT_JUDGED]),
    route("GET", "/v1/authorize/{path}", Access::IfSet(Scope::Check), || any(authorize::authorize_below))
        .operation("authorizePath", "checks", "Decide whether a gateway's request may proceed, whatever its path")
        .about("For gateways that append the path and the query of their client. Both are ignored.")
        .answers(&[check::ALLOWED, AUTHORIZE_FORBIDDEN, check::REFUSED, check::NOT_JUDGED]),
    events("/v1/events", ingestion::ANSWERS).operation("sendEvents", "events", "Append usage events").about(
        "Usage events or CloudEvents. Each is judged by itself: valid ones are in the stream when the answer comes, \
         and the others are listed. An event counts once by its subject, metric and `id`, so a request may be \
         repeated if its events have ids.",
    ),
    events("/api/v1/events", ingestion::ANSWERS_OF_OPENMETER)
        .operation("sendEventsOfOpenMeter", "events", "Append usage events of producers for OpenMeter")
        .about("The same."),
    route("POST", "/v1/reload", ADMIN, || post(reload::reload))
        .operation("reload", "operations", "Read the plans again")
        .about(
            "Like SIGHUP. A configuration with a mistake is refused as a whole. Otherwise its plans apply from the \
             next batch and the next check, and its token from the next request; other settings need a restart. \
             Without `force`, a configuration that sets nothing, removes `http.token` or drops a plan that a subject \
             names is refused too.",
        )
        .answers(&[
            ok("The plans are in effect."),
            problem(422, "The configuration is refused: `detail` names the mistake. The old plans stay in effect."),
        ]),
    route("GET", "/v1/actions", READ, || get(actions::list))
        .operation("listActions", "operations", "List what callers and commands changed, newest first")
        .about("The newest 10,000 or so. Those on a subject are removed when it is erased.")
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/top", READ, || get(top::top))
        .operation("top", "subjects", "Rank subjects by usage of a metric in a period, or by the share of their limit")
        .about("Reads every counter of the period, so callers within 10 seconds share one ranking.")
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects", READ, || get(subjects::list))
        .operation("listSubjects", "subjects", "List the subjects that have settings")
        .about(
            "In no order. Includes every subject that exists from the first page to the last. If subjects are added \
             meanwhile, one may be listed twice. A page may be shorter than `limit`, or empty, although more follow.",
        )
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}", READ, || get(subjects::show))
        .operation("showSubject", "subjects", "Show the settings of a subject, with masked secrets")
        .about("Other settings come from its plan, the default plan and the fallback contacts.")
        .answers(&[
            ok("The result.").headers(ETAG),
            problem(404, "The subject has no settings: the default plan applies."),
            REDIS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}", SUBJECTS, || put(subjects::replace))
        .operation("replaceSubject", "subjects", "Replace the settings of a subject, except its contacts")
        .about(
            "Settings that are left out or `null` come from the plan then. Contacts stay: they have routes of their own. \
             With `If-Match`, replaces only if nobody changed the subject since. Takes effect within a second.",
        )
        .answers(&[ok("The subject as it is now.").headers(ETAG), REDIS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}", ADMIN, || delete(subjects::erase))
        .operation("eraseSubject", "subjects", "Remove all stored data of a subject")
        .about(
            "Removes settings, counts, alerts, history, refused events, deliveries, codes and limiters, of the \
             subject and of all levels below it. If it fails, repeat it. Later usage is counted from zero.",
        )
        .answers(&[ok("The numbers of removed items; all 0 if nothing was stored."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/history", READ, || get(subjects::history))
        .operation("history", "subjects", "List the usage of a subject by day")
        .about("Days with counters, and archived days: up to `history.days` back.")
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/alerts", READ, || get(subjects::alerts))
        .operation("listAlerts", "subjects", "List the stored alerts of a subject, oldest first")
        .about("Alerts of every window, including those before a limit was raised.")
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/deliveries", READ, || get(deliveries::of_subject))
        .operation(
            "listSubjectDeliveries",
            "deliveries",
            "List the deliveries of a subject that pass a filter, newest first",
        )
        .about("A page may have fewer deliveries than requested, or none, although more follow.")
        .hiding("subject")
        .answers(&[ok("The deliveries."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/usage", READ, || get(subjects::usage))
        .operation("usage", "subjects", "Show usage and limits of a subject")
        .about(
            "In the current periods, or on a day and in the longer periods that contain it. A subject without \
             settings has the default plan.",
        )
        .answers(&[ok("The result."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/children", READ, || get(subjects::children))
        .operation("listChildren", "subjects", "Show what the level below a subject used")
        .about(
            "The children with a count in the current period, the largest first, with their share. Empty for a \
             subject without levels below it, or without `subjects.separator`.",
        )
        .answers(&[ok("The children."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/grants", READ, || get(grants::list))
        .operation("listGrants", "subjects", "List the grants of a subject, oldest first")
        .about(
            "With the units that each has paid for until now. Of each metric and period the newest 1,000 are listed, \
             and every one with units left.",
        )
        .answers(&[ok("The grants."), REDIS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/grants", SUBJECTS, || post(grants::add))
        .operation("addGrant", "subjects", "Grant a subject units: prepaid ones, or more for a period")
        .about(
            "Raises the limit of a window by these units, within a second: that of a total, or of the present period \
             of another window. Usage is taken from the grant that expires first, before the limit of the plan. What \
             is left at the expiry is lost. A grant is given once by its id: a repetition is answered with the grant.",
        )
        .answers(&[
            of_handler(201, "The grant is added."),
            of_handler(200, "It was added before."),
            problem(
                409,
                "A grant with this id has other content. Or the subject has no limit for the window, too many active \
                 grants or units, or unreadable settings.",
            ),
            REDIS_UNAVAILABLE,
        ]),
    route("DELETE", "/v1/subjects/{id}/grants/{grant}", SUBJECTS, || delete(grants::revoke))
        .operation("revokeGrant", "subjects", "Revoke what is left of a grant")
        .about("What it has paid for stays. Changes nothing if nothing is left.")
        .answers(&[ok("The grant as it is now."), problem(404, "The subject has no such grant."), REDIS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/portal", SUBJECTS, || post(portal::create))
        .operation("createPortalLink", "subjects", "Make a link with which a customer opens the portal of a subject")
        .about(
            "Everybody who has the link may use it until it expires. Nothing is stored. The subject needs no settings.",
        )
        .answers(&[ok("The link."), problem(409, "`http.public_url` is not set."), REDIS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/portal", SUBJECTS, || delete(portal::revoke))
        .operation("revokePortalLinks", "subjects", "End all links to the portal of a subject, also those in messages")
        .answers(&[of_handler(204, "None of them opens the portal any more."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/subjects/{id}/contacts", READ, || get(contacts::list))
        .operation("listContacts", "contacts", "List the contacts of a subject, with masked secrets")
        .about("The readable contacts in their stored order. Empty if the subject has no contacts of its own.")
        .answers(&[ok("The contacts."), UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts", SUBJECTS, || post(contacts::add))
        .operation("addContact", "contacts", "Add a contact, which gets no alerts until it is verified")
        .about(
            "An email address gets a code and, if `http.public_url` is set, a confirm link. A webhook gets \
             `{\"type\":\"contact.verification\",\"data\":{\"challenge\":\"...\"}}`, signed like alerts, and is \
             verified when it answers 2xx with `{\"challenge\":\"...\"}`. If the URL exists with another secret, that \
             secret stays until the receiver has confirmed the new one.",
        )
        .answers(&[
            of_handler(202, "Added. A request for confirmation is sent to its address."),
            contacts::NOT_ADDED,
            TOO_MANY_REQUESTS,
            CONTACTS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}", SUBJECTS, || put(contacts::replace))
        .operation("replaceContact", "contacts", "Set which alerts a contact gets")
        .about(
            "Replaces both lists. Address, secret and everything else stay. Also works for contacts of the operator.",
        )
        .answers(&[ok("The contact as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}", SUBJECTS, || delete(contacts::remove))
        .operation("removeContact", "contacts", "Remove a contact that was added over HTTP, verified or not")
        .about(
            "Also removes a new secret of a webhook that waits for confirmation. Earlier codes and links no longer \
             verify anything, and pending alerts to the contact are cancelled at their next attempt.",
        )
        .answers(&[
            of_handler(204, "Removed."),
            NO_SUCH_CONTACT,
            problem(409, "The operator added this contact, or the stored contacts can't be read."),
            CONTACTS_UNAVAILABLE,
        ]),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}/mute", SUBJECTS, || put(mutes::mute_contact))
        .operation("muteContact", "contacts", "Mute a contact")
        .about("Alerts for it end `muted` and are not sent later. Verification requests are still sent.")
        .answers(&[ok("The mute as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}/mute", SUBJECTS, || delete(mutes::unmute_contact))
        .operation("unmuteContact", "contacts", "End the mute of a contact")
        .answers(&[of_handler(204, "The mute is removed."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("PUT", "/v1/subjects/{id}/mute", SUBJECTS, || put(mutes::mute_subject))
        .operation("muteSubject", "subjects", "Mute a subject, or one metric of it")
        .about("Counting continues and alerts are recorded. Their deliveries end `muted` and are not sent later.")
        .answers(&[ok("The mute as it is now."), REDIS_UNAVAILABLE]),
    route("DELETE", "/v1/subjects/{id}/mute", SUBJECTS, || delete(mutes::unmute_subject))
        .operation("unmuteSubject", "subjects", "End the mute of a subject, or of one metric of it")
        .about("Without `metric`, mutes of single metrics stay.")
        .answers(&[of_handler(204, "The mute is removed."), REDIS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/enable", SUBJECTS, || post(contacts::enable))
        .operation("enableContact", "contacts", "Enable a disabled contact")
        .about("The contact gets alerts again. Repeatable.")
        .answers(&[ok("The contact as it is now."), NO_SUCH_CONTACT, UNREADABLE, CONTACTS_UNAVAILABLE]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verification", SUBJECTS, || {
        post(contacts::request_verification)
    })
    .operation("requestVerification", "contacts", "Send another verification request to an unverified contact")
    .answers(&[
        of_handler(202, "The request is sent."),
        NO_SUCH_CONTACT,
        VERIFIED_ALREADY,
        TOO_MANY_REQUESTS,
        CONTACTS_UNAVAILABLE,
    ]),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verify", SUBJECTS, || post(contacts::verify))
        .operation("verifyContact", "contacts", "Submit the code that was sent to a contact")
        .answers(&[
            ok("The code is correct, and the contact is verified."),
            problem(
                403,
                "The code is not the newest one, or has expired, or five guesses were wrong. Or the route is off \
                 until the operator sets `http.token`.",
            ),
            NO_SUCH_CONTACT,
            VERIFIED_ALREADY,
            CONTACTS_UNAVAILABLE,
        ]),
    observed("/v1/overview", || get(overview::overview))
        .operation("overview", "overview", "Show what needs attention, and the numbers behind it")
        .about("What `quotabell status` shows. Each problem has its cause and the command that mends it."),
    observed("/v1/near", || get(overview::near))
        .operation(
            "listNear",
            "overview",
            "List the subjects near to a limit or above it, those that run out first come first",
        )
        .about(
            "Those with alerts in periods that have not ended, read from slices of the recorded alerts. A page may be \
             shorter than `limit`, or empty, although more follow.",
        ),
    observed("/v1/alerts", || get(alert_log::read))
        .operation("exportAlerts", "overview", "Export the log of alerts")
        .about(
            "JSON objects of `alert`, as it was raised, and `deliveries` with their ends; of a notice `type`, `notice` and \
             `deliveries`. Kept for `history.alerts_days`. Lines are sent while the log is read.",
        )
        .answers(&[json_lines("The alerts and notices, partition by partition, the newest first."), REDIS_UNAVAILABLE]),
    observed("/v1/alerts/newest", || get(overview::alerts))
        .operation("listAllAlerts", "overview", "List the newest alerts of all subjects, and who was notified")
        .about(
            "Looks at the contacts that each subject has now. More than 5,000 stored alerts are listed in slices, the \
             periods that end last first. A page may be shorter than `limit`, or empty, although more follow.",
        ),
    observed("/v1/destinations", || get(overview::destinations)).operation(
        "listDestinations",
        "overview",
        "List the destinations with pending deliveries, and their circuits",
    ),
    observed("/v1/deliveries/dead", || get(overview::dead)).operation(
        "listDeadCauses",
        "overview",
        "Group the dead deliveries by destination and cause",
    ),
    observed("/v1/refused", || get(overview::refused)).operation(
        "listRefused",
        "overview",
        "Group the refused events by reason, with samples",
    ),
    observed("/v1/mutes", || get(overview::mutes))
        .operation("listMutes", "overview", "List what is muted, the earliest end first within a slice")
        .about("Examines a slice of the subjects with settings, which may have no mute although more follow."),
    observed("/v1/system", || get(overview::system)).operation(
        "system",
        "overview",
        "Show the daemons, and the state of the partitions",
    ),
    route("GET", "/v1/deliveries", READ, || get(deliveries::list))
        .operation(
            "listDeliveries",
            "deliveries",
            "List the deliveries that pass a filter, newest first within a partition",
        )
        .about("A page may have fewer deliveries than requested, or none, although more follow.")
        .answers(&[ok("The deliveries."), REDIS_UNAVAILABLE]),
    route("GET", "/v1/deliveries/{id}", READ, || get(deliveries::show))
        .operation(
            "showDelivery",
            "deliveries",
            "Show a delivery: contact, content, attempts, and an explanation of its state",
        )
        .answers(&[ok("The result."), NO_SUCH_DELIVERY, REDIS_UNAVAILABLE]),
    action("/v1/deliveries/{id}/replay", || post(|api, id| deliveries::act(api, id, DeliveryAction::Replay)))
        .operation("replayDelivery", "deliveries", "Make a dead delivery pending and due again, under the same id"),
    action("/v1/deliveries/{id}/retry", || post(|api, id| deliveries::act(api, id, DeliveryAction::Retry))).operation(
        "retryDelivery",
        "deliveries",
        "Make a pending delivery due now, even behind an open circuit, or replay a dead one",
    ),
    action("/v1/deliveries/{id}/cancel", || post(|api, id| deliveries::act(api, id, DeliveryAction::Cancel)))
        .operation("cancelDelivery", "deliveries", "End a pending delivery without sending it"),
    action("/v1/deliveries/{id}/discard", || post(|api, id| deliveries::act(api, id, DeliveryAction::Discard)))
        .operation("discardDelivery", "deliveries", "Acknowledge a dead delivery, so that it no longer counts as dead"),
    // The token in the path authorizes these routes.
    route("GET", "/confirm/{token}", Open, || get(consent_links::show_confirm))
        .operation("confirmPage", "contacts", "Show the page of a confirm link; changes nothing")
        .answers(&[html(200, "A page with a button that sends the POST.")]),
    route("POST", "/confirm/{token}", Open, || post(consent_links::confirm))
        .operation("confirm", "contacts", "Verify a contact by its confirm link, which works once")
        .answers(&[
            html(200, "The contact is verified, by this request or one a moment earlier."),
            html(410, "The link was used, has expired, or never existed."),
            html(503, "Redis does not answer. The link stays valid: try again."),
        ]),
    route("GET", "/unsubscribe/{token}", Open, || get(consent_links::show_unsubscribe))
        .operation("unsubscribePage", "contacts", "Show the page of an unsubscribe link; changes nothing")
        .answers(&[html(200, "A page with a button that sends the POST.")]),
    route("POST", "/unsubscribe/{token}", Open, || post(consent_links::unsubscribe))
        .operation(
            "unsubscribe",
            "contacts",
            "Mute the contact of an unsubscribe link; mail providers send this (RFC 8058)",
        )
        .answers(&[
            html(200, "The contact is muted, by this request or an earlier one."),
            html(410, "The link was not created by this deployment, or its contact is gone."),
            html(503, "Redis does not answer. The link stays valid: try again."),
        ]),
];

// A route without texts for the document does not compile.
const _: () = {
    let mut at = 0;
    while at < ROUTES.len() {
        let Route { operation_id, summary, answers, .. } = &ROUTES[at];
        assert!(!operation_id.is_empty() && !summary.is_empty() && !answers.is_empty());
        at += 1;
    }
};
