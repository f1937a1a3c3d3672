//! One action on one, some or all matching deliveries: first what it would do, then the run.
//!
//! The preview pins the server's time, so what dies later is not touched. The run goes through slices, and reports what
//! was done, skipped, or changed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use minijinja::context;
use redis::RedisResult;

use super::error::ConsoleError;
use super::fields::Fields;
use super::form::{Admin, Done, SentForm};
use super::href::href_to;
use super::render::rendered_html;
use super::state::{ConsoleState, WithConsole};
use crate::actions::many_deliveries::{DeliverySelection, RunBound, RunOutcome, act_on_many};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::outbox::DeliveryAction;
use crate::redis_client::Partitions;
use crate::types::text::{grouped, one_of, pluralize};
use crate::types::{DeliveryId, DeliveryState, Destination, UnixMs};
use crate::views::deliveries::{list_from, of_ids, read_destinations};
use crate::views::{DeliveryFilter, IdPrefix};

/// Number of deliveries that may be changed before their number has to be typed.
const UNTYPED_MAX: u64 = 100;
/// Maximum number of deliveries that a preview counts.
const COUNTED_MAX: usize = 5_000;
/// Time after which a run begins no further slice: some hundred thousand deliveries.
const RUN_TIME: Duration = Duration::from_secs(60);
/// The fields that select deliveries.
const FILTERS: [&str; 7] = ["state", "subject", "channel", "destination", "error", "cause", "since"];

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
        since: fields.parsed("since")?,
        until: fields.parsed("until")?,
        ..DeliveryFilter::default()
    })
}

/// The page with these parameters and those of the fields that select deliveries.
pub(super) fn href_with_filter(page: &str, first: &[(&str, &str)], fields: &Fields) -> String {
    let first = first.iter().map(|(name, value)| (*name, Some(*value)));
    let filters = FILTERS.into_iter().map(|name| (name, Some(fields.raw(name)).filter(|value| !value.is_empty())));
    href_to(page, &first.chain(filters).collect::<Vec<_>>())
}

fn selected(fields: &Fields) -> Result<(DeliveryAction, DeliverySelection), Problem> {
    let action = DeliveryAction::from_stored(fields.raw("do")).ok_or_else(|| {
        Problem::bad_request(format!("do: must be {}", one_of(&DeliveryAction::ALL.map(DeliveryAction::as_str))))
    })?;
    let mut ids = fields.all("id").map(delivery_id).collect::<Result<Vec<DeliveryId>, Problem>>()?;
    ids.sort();
    ids.dedup();
    let mut filter = filter_of(fields)?;
    if ids.is_empty() && fields.raw("all").is_empty() && FILTERS.iter().all(|name| fields.raw(name).is_empty()) {
        return Err(Problem::bad_request("no delivery is selected: mark some in the list, or name a filter"));
    }
    if let Some(state) = filter.state.filter(|state| !action.takes().contains(state)) {
        let takes: Vec<&str> = action.takes().iter().map(|state| state.as_str()).collect();
        let (takes, done) = (takes.join(" and "), action.done());
        return Err(Problem::bad_request(format!("state: {state} ones can't be {done}, only {takes} ones")));
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

/// What a preview counts.
#[derive(Debug, Default)]
struct Counted {
    /// The action would be applied to these.
    count: u64,
    /// Those that are being attempted.
    leased: u64,
    /// Selected ones that the action does not accept.
    others: u64,
    /// Whether there may be more.
    is_cut: bool,
}

async fn count(
    partitions: &Partitions,
    action: DeliveryAction,
    DeliverySelection { ids, filter }: &DeliverySelection,
) -> RedisResult<Counted> {
    let (mut views, mut is_cut) = (Vec::new(), false);
    if ids.is_empty() {
        let (listed, next) = list_from(partitions, filter, None, COUNTED_MAX).await?;
        (views, is_cut) = (listed, next.is_some());
    } else {
        for partition in partitions.iter() {
            views.extend(of_ids(partition, ids).await?);
        }
    }
    let found = ids.len().max(views.len());
    views.retain(|view| action.takes().contains(&view.state));
    let others = (found - views.len()) as u64;
    let mut leased = views.iter().filter(|view| view.is_leased).count() as u64;
    let count = views.len() as u64 - leased;
    // Those that were replayed before belong to the same destination.
    if let (Some(destination), [DeliveryState::Dead]) = (&filter.destination, action.takes()) {
        for partition in partitions.iter() {
            let read = read_destinations(partition, std::slice::from_ref(destination)).await?;
            leased += read.iter().map(|view| view.in_flight).sum::<u64>();
        }
    }
    Ok(Counted { count, leased, others, is_cut })
}

/// `GET /act`
pub(super) async fn preview(
    State(console): WithConsole,
    Admin(visitor): Admin,
    RawQuery(query): RawQuery,
) -> Result<Response, ConsoleError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let (action, mut selection) = selected(&fields)?;
    let partitions = &console.observer.partitions;
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
    let until: UnixMs = *selection.filter.until.get_or_insert(now);
    let Counted { count, leased, others, is_cut } = within(CALL_TIMEOUT, count(partitions, action, &selection)).await?;
    let mut kept: Vec<(&str, String)> = fields.all("id").map(|id| ("id", id.to_owned())).collect();
    kept.extend(FILTERS.into_iter().chain(["do", "all"]).map(|name| (name, fields.raw(name).to_owned())));
    kept.retain(|(_, value)| !value.is_empty());
    let content = context! {
        title => sentence(action, &selection, count, is_cut),
        action => action.as_str(),
        done => action.done(),
        until => until.to_string(),
        way_back => next_of(&fields),
        is_typed => count > UNTYPED_MAX,
        count, leased, others, is_cut, kept,
    };
    Ok(rendered_html("act.html", &visitor, content))
}

/// The question of the preview.
fn sentence(action: DeliveryAction, selection: &DeliverySelection, count: u64, is_cut: bool) -> String {
    let verb = action.as_str();
    let verb = format!("{}{}", verb[..1].to_uppercase(), &verb[1..]);
    let at_least = if is_cut { "at least " } else { "" };
    let number = pluralize(count, "delivery", "deliveries");
    let until = selection.filter.until.map(|until| until.to_string()).unwrap_or_default();
    let until = until.get(11..19).unwrap_or_default();
    let which = match (selection.ids.is_empty(), selection.filter.state) {
        (false, _) => String::new(),
        (true, Some(DeliveryState::Dead)) => format!(" that died up to {until} UTC"),
        (true, _) => format!(" made up to {until} UTC"),
    };
    format!("{verb} {at_least}{number}{which}?")
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
        let detail = format!("type the number of deliveries, {}: nothing was changed", grouped(count, ","));
        let preview = href_with_filter("act", &[("do", fields.raw("do")), ("all", fields.raw("all"))], fields);
        return Err(ConsoleError::from(Problem::bad_request(detail)).with_way_to(&preview));
    }
    form.once(console, next, run).await
}

async fn run(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (action, selection) = selected(&fields)?;
    if selection.filter.until.is_none() {
        return Err(Problem::bad_request("until: is missing, the preview sets it").into());
    }
    let count: u64 = fields.parsed("count")?.unwrap_or_default();
    let changed_max = if count > UNTYPED_MAX { u64::MAX } else { UNTYPED_MAX };
    let bound = RunBound { changed_max, time: RUN_TIME };
    let partitions = &console.observer.partitions;
    let outcome = act_on_many(partitions, &console.new_deliveries, action, &selection, bound).await;
    let outcome = outcome.map_err(Problem::from)?;
    let target = if let [id] = &selection.ids[..] { id.to_string() } else { String::new() };
    let is_exact = fields.raw("is_cut").is_empty();
    let message = report(action, outcome, is_exact.then_some(count));
    Ok(Done { message, action: format!("{action}Delivery"), target, count: outcome.done, ..Done::default() })
}

/// What became of them, if the preview counted `counted`.
fn report(
    action: DeliveryAction,
    RunOutcome { done, leased, others, is_cut }: RunOutcome,
    counted: Option<u64>,
) -> String {
    let deliveries = |number| pluralize(number, "delivery", "deliveries");
    let mut report = format!("{} {}.", deliveries(done), action.done());
    if leased > 0 {
        report += &format!(" {} skipped: being attempted.", deliveries(leased));
    }
    // Some changed before the run saw them.
    let others = counted.map_or(others, |counted| others.max(counted.saturating_sub(done + leased)));
    if is_cut {
        report += " There are more: do it again.";
    } else if others > 0 {
        report += &format!(" {} changed meanwhile and stay.", deliveries(others));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator must learn of each delivery that was counted and not changed.
    #[test]
    fn the_report_accounts_for_every_delivery() {
        let told = |outcome, counted| report(DeliveryAction::Replay, outcome, counted);
        let outcome = RunOutcome { done: 2880, leased: 12, others: 1, is_cut: false };
        let skipped = "2,880 deliveries replayed. 12 deliveries skipped: being attempted.";
        assert_eq!(told(outcome, Some(2900)), format!("{skipped} 8 deliveries changed meanwhile and stay."));
        assert_eq!(told(outcome, None), format!("{skipped} 1 delivery changed meanwhile and stay."));
        assert_eq!(told(RunOutcome { done: 1, ..RunOutcome::default() }, Some(1)), "1 delivery replayed.");
        let cut = RunOutcome { done: 100, is_cut: true, ..RunOutcome::default() };
        assert_eq!(told(cut, Some(120)), "100 deliveries replayed. There are more: do it again.");
    }
}
