//! `portal`: a link with which a customer opens the portal of its subject.

use clap::Args;
use serde::Serialize;

use super::connect;
use super::context::CliContext;
use crate::actions::contacts::check_levels;
use crate::actions::portal::{NewPortal, PortalError, revoke};
use crate::signing::PortalRight;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{Locale, Metric, Subject};
use crate::views::explain::is_known;

#[derive(Debug, Args)]
#[command(after_help = "Everybody who has the link may use it until it expires. The platform makes links with
POST /v1/subjects/{id}/portal.

Examples:
  quotabell portal alice
  quotabell portal alice --for 24h --contacts --locale vi
  quotabell portal alice --revoke")]
pub struct PortalArgs {
    /// The subject of the portal
    pub subject: Subject,
    /// How long the link is valid, at most 24h [default: 1h]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "revoke")]
    pub lifetime: Option<String>,
    /// The visitor may add, mute and remove the subject's own contacts, and send them test messages
    #[arg(long, conflicts_with = "revoke")]
    pub contacts: bool,
    /// Show only this metric; may be given several times
    #[arg(long = "metric", value_name = "METRIC", conflicts_with = "revoke")]
    pub metrics: Vec<Metric>,
    /// The language of the pages [default: that of the subject, or of the browser]
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "revoke")]
    pub locale: Option<Locale>,
    /// The URL to which the pages lead back
    #[arg(long, value_name = "URL", conflicts_with = "revoke")]
    pub return_url: Option<String>,
    /// End all links to the portal of the subject, also those in messages
    #[arg(long)]
    pub revoke: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Serialize)]
struct Revoked<'a> {
    subject: &'a Subject,
    revoked: bool,
}

pub async fn run(args: PortalArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let PortalArgs { subject, lifetime, contacts, metrics, locale, return_url, revoke: revokes, format } = args;
    check_levels(&config.keys(), &subject, false)
        .map_err(|error| hint::failed(error, "subjects.separator decides how ids are divided"))?;
    let redis = connect::redis(&config).await?;
    if revokes {
        redis.explained(format_args!("revoke links of {subject}"), revoke(redis.partitions.first(), &subject).await)?;
        redis.record("revokePortalLinks", Some(&subject), "", 1).await;
        return output::print(&format, &Revoked { subject: &subject, revoked: true }, |_| {
            say(format_args!("the links to the portal of {subject} are revoked"));
            Ok(())
        });
    }
    let may = contacts.then(|| vec![PortalRight::View, PortalRight::Contacts]);
    let metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
    let new = NewPortal { lifetime, may, metrics, locale, return_url };
    let created = config.portal_links(&redis.partitions)?.create(new, subject.clone()).await;
    let invitation = created.map_err(|error| match error {
        PortalError::Redis(error) => {
            redis.explained("sign a link", Err::<(), _>(error)).expect_err("an error stays an error")
        }
        PortalError::NotPublic => {
            hint::failed(error, "set http.public_url to the address of http.listen for customers")
        }
        PortalError::Invalid(problem) => hint::usage(problem, "`quotabell portal --help`"),
    })?;
    let known = is_known(&redis.partitions, &subject).await;
    if !redis.explained(format_args!("read what is stored of {subject}"), known)? {
        say(format_args!("warning: nothing is known of {} yet", printable(subject.as_str())));
    }
    redis.record("createPortalLink", Some(&subject), "", 1).await;
    output::print(&format, &invitation, |output| {
        say(format_args!("valid until {}", invitation.expires_at));
        output.line(&invitation.url)
    })
}
