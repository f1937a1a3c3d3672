//! One action on one, some or all matching deliveries: first what it would do, then the run. Read next: `bulk_count`.
//!
//! The preview pins the server's time, so what dies later is not touched. The run goes through slices, and reports what
//! was done, skipped, or changed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use redis::RedisResult;

use super::bulk_count::{Counted, UNTYPED_MAX, count};
use super::error::ConsoleError;
use super::form::{Admin, Done, SentForm};
use super::render::{rendered_html, shown};
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use crate::actions::deliveries::subject_of;
use crate::actions::many_deliveries::{DeliverySelection, RunBound, RunOutcome, act_on_many};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::fields::Fields;
use crate::html::href::href_to;
use crate::outbox::DeliveryAction;
use crate::redis_client::Partitions;
use crate::types::text::{one_of, pluralize};
use crate::types::timestamp::TimeOrDate;
use crate::types::{DeliveryId, DeliveryState, Destination, UnixMs};
use crate::views::deliveries::{list_from, of_ids};
use crate::views::{DeliveryFilter, DeliveryView, IdPrefix};

/// Time after which a run begins no further slice: some hundred thousand deliveries.
const RUN_TIME: Duration = Duration::from_secs(60);
/// Number of deliveries that a preview shows.
const SHOWN_MAX: usize = 5;
/// Number of selected deliveries that the log of actions names.
const TARGETS_MAX: usize = 10;
/// The fields that select deliveries.
const FILTERS: [&str; 9] = ["state", "subject", "channel", "destination", "error", "cause", "alert", "since", "before"];

/// The filter of the fields that select deliveries.
///
/// # Errors
///
/// The field, and what is allowed.
pub(super) fn filter_of(fields: &Fields) -> Result<DeliveryFilter, Problem> {
    Ok(DeliveryFilter {
        state: fields.parsed("state")?,
        subject: match fields.raw("subject") {
            "" => None,
            _ => Some(fields.subject()?),
        },
        channel: fields.parsed("channel")?,
        destination: fields.text("destination").map(Destination::from_stored),
        error: fields.text("error").map(str::to_owned),
        cause: fields.text("cause").map(str::to_owned),
        alert: fields.parsed("alert")?,
        since: fields.parsed("since")?.map(|TimeOrDate(since)| since),
        before: fields.parsed("before")?.map(|TimeOrDate(before)| before),
        until: fields.parsed("until")?,
    })
}

/// The page with these parameters and those of the fields that select deliveries.
pub(super) fn href_with_filter(page: &str, first: &[(&str, &str)], fields: &Fields) -> String {
    let first = first.iter().map(|(name, value)| (*name, Some(*value)));
    let filters = FILTERS.into_iter().map(|name| (name, Some(fields.raw(name)).filter(|value| !value.is_empty())));
    href_to(page, &first.chain(filters).collect::<Vec<_>>())
}

fn selected(fields: &Fields) -> Result<(DeliveryAction, DeliverySelection), ConsoleError> {
    let action = DeliveryAction::from_stored(fields.raw("do")).ok_or_else(|| {
        Problem::bad_request(format!("do: must be {}", one_of(&DeliveryAction::ALL.map(DeliveryAction::as_str))))
    })?;
    let mut ids = fields.all("id").map(delivery_id).collect::<Result<Vec<DeliveryId>, Problem>>()?;
    ids.sort();
    ids.dedup();
    let mut filter = filter_of(fields)?;
    if ids.is_empty() && fields.raw("all").is_empty() && FILTERS.iter().all(|name| fields.raw(name).is_empty()) {
        let detail =
            "no delivery is selected: go back to the list, mark the deliveries in its first column, and choose again";
        let list = href_to("deliveries", &[("state", action.takes().first().map(|state| state.as_str()))]);
        return Err(ConsoleError::from(Problem::bad_request(detail)).with_way_to(&list));
    }
    if let Some(state) = filter.state.filter(|state| !action.takes().contains(state)) {
        let takes: Vec<&str> = action.takes().iter().map(|state| state.as_str()).collect();
        let (takes, done) = (takes.join(" and "), action.done());
        return Err(Problem::bad_request(format!("state: {state} ones can't be {done}, only {takes} ones")).into());
    }
    if ids.is_empty() {
        filter.state = filter.state.or_else(|| action.takes().first().copied());
    }
    Ok((action, DeliverySelection { ids, filter }))
}

/// A whole id: fewer digits could mean another delivery tomorrow.
pub(super) fn delivery_id(text: &str) -> Result<DeliveryId, Problem> {
    let whole = text.parse::<IdPrefix<DeliveryId>>().ok().and_then(|prefix| prefix.whole());
    whole.ok_or_else(|| Problem::bad_request("id: must be delivery_ and 32 hex digits"))
}

/// `GET /act`
pub(super) async fn preview(
    State(console): WithConsole,
    Admin(visitor): Admin,
    RawQuery(query): RawQuery,
) -> Result<Response, ConsoleError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    rendered_preview(&console, &visitor, &fields, None).await
}

async fn rendered_preview(
    console: &ConsoleState,
    visitor: &Visitor,
    fields: &Fields,
    fault: Option<&str>,
) -> Result<Response, ConsoleError> {
    let (action, mut selection) = selected(fields)?;
    let partitions = &console.observer.partitions;
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
    let until: UnixMs = *selection.filter.until.get_or_insert(now);
    let counted = within(CALL_TIMEOUT, count(partitions, action, &selection)).await?;
    let first = within(CALL_TIMEOUT, first_of(partitions, action, &selection)).await?;
    let Counted { count, leased, in_flight, others, is_cut } = counted;
    let mut kept: Vec<(&str, String)> = fields.all("id").map(|id| ("id", id.to_owned())).collect();
    kept.extend(FILTERS.into_iter().chain(["do", "all"]).map(|name| (name, fields.raw(name).to_owned())));
    kept.retain(|(_, value)| !value.is_empty());
    let content = context! {
        title => sentence(action, &selection, count),
        action => action.as_str(),
        done => action.done(),
        until => until.to_string(),
        way_back => next_of(fields),
        is_typed => count > UNTYPED_MAX,
        first => shown(&first),
        formats => shown(&console.observer.plans.formats()),
        fault, count, leased, in_flight, others, is_cut, kept,
    };
    Ok(rendered_html("act.html", visitor, content))
}

/// The first of those to which the action would be applied.
async fn first_of(
    partitions: &Partitions,
    action: DeliveryAction,
    DeliverySelection { ids, filter }: &DeliverySelection,
) -> RedisResult<Vec<DeliveryView>> {
    let mut views = Vec::new();
    if ids.is_empty() {
        views = list_from(partitions, filter, None, SHOWN_MAX).await?.0;
    } else {
        for partition in partitions.iter() {
            views.extend(of_ids(partition, ids).await?);
        }
    }
    views.retain(|view| action.takes().contains(&view.state) && !view.is_leased);
    views.truncate(SHOWN_MAX);
    Ok(views)
}

/// The question of the preview.
fn sentence(action: DeliveryAction, selection: &DeliverySelection, count: u64) -> String {
    let verb = action.as_str();
    let verb = format!("{}{}", verb[..1].to_uppercase(), &verb[1..]);
    let number = pluralize(count, "delivery", "deliveries");
    let until = selection.filter.until.map(|until| until.to_string()).unwrap_or_default();
    let until = until.get(11..19).unwrap_or_default();
    let which = match (selection.ids.is_empty(), selection.filter.state) {
        (false, _) => String::new(),
        (true, Some(DeliveryState::Dead)) => format!(" that died up to {until} UTC"),
        (true, _) => format!(" made up to {until} UTC"),
    };
    format!("{verb} {number}{which}?")
}

fn next_of(fields: &Fields) -> String {
    let ids: Vec<&str> = fields.all("id").collect();
    match ids[..] {
        [id] => href_to("delivery", &[("id", Some(id))]),
        _ => href_with_filter("deliveries", &[], fields),
    }
}

/// `POST /act`
pub(super) async fn act(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let (fields, next) = (&form.fields, next_of(&form.fields));
    let count: u64 = fields.parsed("count")?.unwrap_or_default();
    let typed: String = fields.raw("typed").chars().filter(char::is_ascii_digit).collect();
    if count > UNTYPED_MAX && typed != count.to_string() {
        let detail = "type the number of deliveries: nothing was changed";
        let page = rendered_preview(&console, &form.visitor, fields, Some(detail)).await?;
        return Err(ConsoleError::rendered(StatusCode::BAD_REQUEST, page));
    }
    form.once(console, next, run).await
}

async fn run(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (action, selection) = selected(&fields)?;
    if selection.filter.until.is_none() {
        return Err(Problem::bad_request("until: is missing, the preview sets it").into());
    }
    let counted = Counted::of_form(&fields)?;
    let bound = RunBound { changed_max: counted.changed_max(), time: RUN_TIME };
    let partitions = &console.observer.partitions;
    let (outcome, failed) = act_on_many(partitions, &console.new_deliveries, action, &selection, bound).await;
    let failed = failed.map(Problem::from);
    let message = report(action, outcome, &counted, failed.as_ref().map(Problem::detail));
    // What was done before the failure must be told and recorded.
    if let Some(problem) = failed.filter(|_| outcome.done == 0) {
        return Err(problem.into());
    }
    let DeliverySelection { ids, filter } = selection;
    let subject = match &ids[..] {
        // That it can't be read is no failure.
        [id] => within(CALL_TIMEOUT, subject_of(partitions, id)).await.unwrap_or_default(),
        _ => filter.subject,
    };
    let target = match &ids[..] {
        [id] => id.to_string(),
        [] => {
            let destination = filter.destination.map(|destination| destination.to_string());
            destination.into_iter().chain(filter.state.map(|state| state.to_string())).collect::<Vec<_>>().join(" ")
        }
        [named @ .., last] if named.len() < TARGETS_MAX => {
            named.iter().map(|id| format!("{id} ")).collect::<String>() + last.as_str()
        }
        several => format!("{} and {} more", several[0], several.len() - 1),
    };
    Ok(Done { message, action: format!("{action}Delivery"), subject, target, count: outcome.done })
}

/// What became of them, if the preview counted `counted`, and what ended it early.
fn report(
    action: DeliveryAction,
    RunOutcome { done, leased, others, is_cut }: RunOutcome,
    counted: &Counted,
    failed: Option<&str>,
) -> String {
    let deliveries = |number| pluralize(number, "delivery", "deliveries");
    let mut report = match action {
        DeliveryAction::Retry => format!("{} due now.", pluralize(done, "delivery is", "deliveries are")),
        _ => format!("{} {}.", deliveries(done), action.done()),
    };
    if leased > 0 {
        report += &format!(" {} skipped: being attempted.", deliveries(leased));
    }
    // Some changed before the run saw them. The preview told of others that it does not apply to.
    let changed = match counted.is_cut {
        true => others.saturating_sub(counted.others),
        false => counted.count.saturating_add(counted.leased).saturating_sub(done + leased),
    };
    if let Some(failed) = failed {
        report += &format!(" Then it failed: {failed}. Do it again for the rest.");
    } else if is_cut {
        report += " There are more: do it again.";
    } else if changed > 0 {
        report += &format!(" {} skipped: changed meanwhile.", deliveries(changed));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator must learn of each delivery that was counted and not changed.
    #[test]
    fn the_report_accounts_for_every_delivery() {
        let told = |outcome, counted: Counted| report(DeliveryAction::Replay, outcome, &counted, None);
        let exact = |count, leased| Counted { count, leased, ..Counted::default() };
        let outcome = RunOutcome { done: 2880, leased: 12, others: 1, is_cut: false };
        let skipped = "2,880 deliveries replayed. 12 deliveries skipped: being attempted.";
        assert_eq!(told(outcome, exact(2900, 0)), format!("{skipped} 8 deliveries skipped: changed meanwhile."));
        // The preview had excluded the attempted ones.
        assert_eq!(told(outcome, exact(2880, 12)), skipped);
        let cut = Counted { is_cut: true, ..Counted::default() };
        assert_eq!(told(outcome, cut), format!("{skipped} 1 delivery skipped: changed meanwhile."));
        assert_eq!(told(RunOutcome { done: 1, ..RunOutcome::default() }, exact(1, 0)), "1 delivery replayed.");
        // The preview had named the one in another state.
        let of_two = Counted { others: 1, ..exact(1, 0) };
        assert_eq!(told(RunOutcome { done: 1, others: 1, ..RunOutcome::default() }, of_two), "1 delivery replayed.");
        let cut = RunOutcome { done: 100, is_cut: true, ..RunOutcome::default() };
        assert_eq!(told(cut, exact(120, 0)), "100 deliveries replayed. There are more: do it again.");
        let failed = report(DeliveryAction::Replay, RunOutcome { is_cut: false, ..cut }, &exact(120, 0), Some("no"));
        assert_eq!(failed, "100 deliveries replayed. Then it failed: no. Do it again for the rest.");
    }
}
