//! The form with the settings of a subject. It holds the stored texts, so that an unreadable one can be mended, and a
//! digest of the settings that it began with: if they have changed since, the page shows both and saves neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::TryFutureExt as _;
use minijinja::{Value, context};
use sha2::{Digest, Sha256};

use super::error::ConsoleError;
use super::form::{Admin, Done, SentForm};
use super::parsed_query::ParsedQuery;
use super::render::{rendered_html, shown};
use super::sentence::labelled;
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use super::subject::AskedSubject;
use crate::actions::grants;
use crate::actions::subject_change::{ContactsChange, SubjectChange, write_if};
use crate::actions::subject_patch::{OtherSettings, SubjectPatch};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::fields::Fields;
use crate::html::href::href_to;
use crate::subjects::Plans;
use crate::subjects::record::{LIMIT_PREFIX, PLAN, SETTINGS, SubjectField, is_setting, limit_warnings};
use crate::types::Subject;
use crate::types::text::{hex, separated};
use crate::views::subject::read_fields;

/// The field of the form with the limits: a line `metric = limits` for each metric.
const LIMITS: &str = "limits";

/// Settings as text, by the names of the form's fields.
type SettingsText = BTreeMap<&'static str, String>;

fn stored_text(fields: &[SubjectField]) -> SettingsText {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value);
    let text = |name| value(name).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
    let mut limits: Vec<String> = fields
        .iter()
        .filter_map(|(field, value)| {
            let field = String::from_utf8_lossy(field);
            Some(format!("{} = {}", field.strip_prefix(LIMIT_PREFIX)?, String::from_utf8_lossy(value)))
        })
        .collect();
    limits.sort();
    SETTINGS.into_iter().map(|name| (name, text(name))).chain([(LIMITS, limits.join("\n"))]).collect()
}

fn sent_text(fields: &Fields) -> SettingsText {
    let text = |name| fields.text(name).unwrap_or_default().replace("\r\n", "\n");
    SETTINGS.into_iter().chain([LIMITS]).map(|name| (name, text(name))).collect()
}

/// A digest of the settings, without contacts and mutes.
fn version_of(fields: &[SubjectField]) -> String {
    let is_setting = |(name, _): &&SubjectField| std::str::from_utf8(name).is_ok_and(is_setting);
    let mut settings: Vec<&SubjectField> = fields.iter().filter(is_setting).collect();
    settings.sort();
    let mut digest = Sha256::new();
    for part in settings.into_iter().flat_map(|(name, value)| [name, value]) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex(&digest.finalize())
}

/// The change that replaces all settings by these.
fn patch_of(text: &SettingsText, plans: &Plans) -> Result<SubjectPatch, String> {
    let mut patch = SubjectPatch { others: OtherSettings::ClearAll, ..SubjectPatch::default() };
    for (name, value) in text.iter().filter(|(name, value)| **name != LIMITS && !value.is_empty()) {
        patch.parse(name, value)?;
    }
    let mut limits: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text[LIMITS].lines().filter(|line| !line.trim().is_empty()) {
        let (metric, of_metric) = line
            .split_once('=')
            .ok_or_else(|| format!("limits: {line:?} is not METRIC = LIMITS, such as requests = 600/hour 5000/day"))?;
        limits.entry(metric.trim()).or_default().push(of_metric.trim());
    }
    for (metric, of_metric) in limits {
        patch.parse(&format!("{LIMIT_PREFIX}{metric}"), &of_metric.join(" "))?;
    }
    patch.checked(plans)
}

/// What the page shows beside the form.
#[derive(Debug, Default)]
struct Around {
    /// Why it was not saved.
    fault: Option<String>,
    /// What somebody else has saved meanwhile.
    stored: Option<SettingsText>,
    /// The id that was sent for a new subject.
    new_id: String,
    /// Whether it is the id of a subject already.
    exists: bool,
}

fn rendered_form(
    console: &ConsoleState,
    visitor: &Visitor,
    id: &str,
    version: &str,
    text: &SettingsText,
    around: Around,
) -> Response {
    let mut plans = console.observer.plans.names();
    // A plan that is no longer configured must not turn into the default by itself.
    if !text[PLAN].is_empty() && !plans.contains(&text[PLAN]) {
        plans.push(text[PLAN].clone());
    }
    let Around { fault, stored, new_id, exists } = around;
    let title = if id.is_empty() { "New subject".to_owned() } else { format!("Settings of {id}") };
    let differences = stored.as_ref().map(|stored| differences(stored, text));
    // The level of a new subject is not known yet.
    let of_level = || console.observer.plans.default_plan_of(id).name.to_string();
    let default_plan = (!id.is_empty()).then(of_level);
    let content: Value = context! { title, id, new_id, exists, version, text_of => shown(text), plans, default_plan, fault, differences };
    rendered_html("settings.html", visitor, content)
}

/// The settings that differ, each with the stored and the sent text.
fn differences(stored: &SettingsText, sent: &SettingsText) -> Vec<(&'static str, String, String)> {
    let differing = stored.iter().filter(|(name, stored)| **stored != sent[*name]);
    differing.map(|(name, stored)| (*name, for_people(name, stored), for_people(name, &sent[name]))).collect()
}

/// The text of a setting, whose limits have separators.
fn for_people(name: &str, text: &str) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((metric, limits)) if name == LIMITS => format!("{metric}={}", separated(limits)),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// `GET /settings`: of a subject, or of a new one without an id.
pub(super) async fn show(
    State(console): WithConsole,
    Admin(visitor): Admin,
    ParsedQuery(AskedSubject { id, .. }): ParsedQuery<AskedSubject>,
) -> Result<Response, ConsoleError> {
    let fields = match id.parse::<Subject>() {
        Ok(subject) => stored_fields(&console, &subject).await?,
        Err(_) if id.is_empty() => Vec::new(),
        Err(error) => return Err(Problem::bad_request(format!("id: {error}")).into()),
    };
    Ok(rendered_form(&console, &visitor, &id, &version_of(&fields), &stored_text(&fields), Around::default()))
}

async fn stored_fields(console: &ConsoleState, subject: &Subject) -> Result<Vec<SubjectField>, Problem> {
    within(CALL_TIMEOUT, read_fields(console.observer.partitions.partition_of(subject), subject)).await
}

/// `POST /settings`
pub(super) async fn save(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let next = href_to("subject", &[("id", Some(form.fields.raw("subject")))]);
    let (fields, visitor) = (form.fields.clone(), form.visitor.clone());
    match form.once(Arc::clone(&console), next, replace).await {
        Err(ConsoleError::Told { status, detail, .. }) => {
            // The id of a new subject can be corrected too.
            let sent = fields.raw("subject");
            let (id, new_id) = if fields.raw("is_new").is_empty() { (sent, "") } else { ("", sent) };
            let around = Around { fault: Some(labelled(&detail)), new_id: new_id.to_owned(), ..Around::default() };
            let page = rendered_form(&console, &visitor, id, fields.raw("version"), &sent_text(&fields), around);
            Err(ConsoleError::rendered(status, page))
        }
        answer => answer,
    }
}

async fn replace(console: Arc<ConsoleState>, SentForm { fields, visitor, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (text, version) = (sent_text(&fields), fields.raw("version"));
    let plans = &console.observer.plans;
    let (subject, settings) = (fields.subject()?, patch_of(&text, plans).map_err(Problem::bad_request)?);
    let partition = console.observer.partitions.partition_of(&subject);
    let change = SubjectChange { subject: subject.clone(), settings, contacts: ContactsChange::Keep };
    let is_new = !fields.raw("is_new").is_empty();
    let is_expected = |stored: &[SubjectField]| version_of(stored) == version && (!is_new || stored.is_empty());
    if within(CALL_TIMEOUT, write_if(partition, usize::MAX, &change, is_expected)).await?.is_none() {
        if is_new {
            let around = Around { new_id: subject.to_string(), exists: true, ..Around::default() };
            let page = rendered_form(&console, &visitor, "", version, &text, around);
            return Err(ConsoleError::rendered(StatusCode::CONFLICT, page));
        }
        let stored = stored_fields(&console, &subject).await?;
        let around = Around { stored: Some(stored_text(&stored)), ..Around::default() };
        let page = rendered_form(&console, &visitor, subject.as_str(), &version_of(&stored), &text, around);
        return Err(ConsoleError::rendered(StatusCode::PRECONDITION_FAILED, page));
    }
    let of_grants = grants::warnings_of_lost_limits(partition, plans, &subject).map_err(Problem::from);
    // It is saved: that the grants can't be read is no failure.
    let of_grants = within(CALL_TIMEOUT, of_grants).await.unwrap_or_else(|problem| {
        vec![format!("could not check whether its grants still raise a limit: {}", problem.detail())]
    });
    // The message outlives an erasure, so it must not name the subject.
    let of_grants = of_grants.into_iter().map(|warning| match warning.strip_prefix(subject.as_str()) {
        Some(rest) => format!("it{rest}"),
        None => warning,
    });
    let warnings = limit_warnings(&change.settings.set).into_iter().chain(of_grants);
    let warnings: String = warnings.map(|warning| format!(" Warning: {warning}.")).collect();
    let (message, action) = (format!("The settings are saved.{warnings}"), "replaceSubject".to_owned());
    Ok(Done { message, action, subject: Some(subject), count: 1, ..Done::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(pairs: &[(&str, &str)]) -> Vec<SubjectField> {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    /// Saving a form that nobody has touched must change nothing.
    #[test]
    fn the_stored_settings_survive_the_form() {
        let plans = Plans::new(&[("free".to_owned(), Default::default())].into(), "free").expect("a plan");
        let fields = [("limit:requests", "600/hour 5000/day"), ("limit:tokens", "9/total"), ("plan", "free")];
        let patch = patch_of(&stored_text(&stored(&fields)), &plans).expect("valid");
        let mut written = patch.set.to_fields();
        written.sort();
        let written: Vec<(&str, &str)> = written.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(written, fields);
    }

    /// A contact that the daemon disables must not stop an editor, and another limit must.
    #[test]
    fn only_settings_make_another_version() {
        let version = |pairs: &[(&str, &str)]| version_of(&stored(pairs));
        let before = version(&[("plan", "free"), ("limit:a", "1")]);
        assert_eq!(before, version(&[("limit:a", "1"), ("contacts", "[]"), ("muted", "true"), ("plan", "free")]));
        assert_ne!(before, version(&[("plan", "free"), ("limit:a", "2")]));
        assert_ne!(before, version(&[("plan", "free"), ("limit:a", "1"), ("limit:b", "1")]));
    }
}
