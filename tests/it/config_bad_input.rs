//! A configuration that is wrong: the error names the thing, the place and what is allowed, and ends with a hint.

use std::fs;

use crate::support::binary::quotabell;
use crate::support::table::Table;

/// What `check-config` says to this file.
fn told(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("quotabell.toml"), text).expect("the folder is writable");
    quotabell(["check-config", "--offline", "--config", "quotabell.toml"]).within(folder.path()).run().told()
}

/// What `check-config` says to this variable.
fn told_to_variable(name: &str, value: &str) -> String {
    quotabell(["check-config", "--offline"]).env(name, value).run().told()
}

/// One snapshot for all of them: what each would cost, the text, and what is said to it.
macro_rules! wrong_files {
    ($(#[doc = $why:literal] $case:ident: $text:expr;)*) => {
        /// The message alone must say what to write instead.
        #[test]
        fn wrong_files_are_explained() {
            let cases = [$((stringify!($case), $why, $text)),*];
            let told = |(case, why, text)| (format!("{case}:{why}\n{text}--"), told(text));
            insta::assert_snapshot!(cases.map(told).into_iter().collect::<Table>());
        }
    };
}

wrong_files! {
    /// A misspelt key would leave its default in force without a word.
    an_unknown_key_is_an_error: "[redis]\nurl = \"embedded\"\n\n[webhook]\ntiemout = \"5s\"\n";
    /// A scope that is not known would let nobody in.
    an_unknown_scope_is_an_error: "[[http.tokens]]\nname = \"gateway\"\nfile = \"f\"\nscopes = [\n  \"check\",\n  \"events\",\n]\n";
    /// A token that may do nothing is a mistake.
    a_token_without_scopes_is_an_error: "[[http.tokens]]\nname = \"gateway\"\nfile = \"f\"\nscopes = []\n";
    /// Two callers with one name could not be told apart.
    two_tokens_of_one_name_are_an_error: "[[http.tokens]]\nname = \"a\"\nfile = \"f\"\nscopes = [\"read\"]\n\n[[http.tokens]]\nname = \"a\"\nfile = \"g\"\nscopes = [\"read\"]\n";
    /// Names stand in metrics and logs.
    a_token_with_an_odd_name_is_an_error: "[[http.tokens]]\nname = \"the gateway\"\nfile = \"f\"\nscopes = [\"read\"]\n";
    /// Its caller would be refused, and nobody would know why.
    a_token_file_that_is_not_there_is_an_error: "[[http.tokens]]\nname = \"gateway\"\nfile = \"/nowhere/gateway\"\nscopes = [\"read\"]\n";
    /// A token in the configuration is a secret in the wrong place.
    a_token_in_place_of_its_file_is_an_error: "[[http.tokens]]\nname = \"gateway\"\ntoken = \"0123456789abcdef\"\nscopes = [\"read\"]\n";
    /// A misspelt section, likewise.
    an_unknown_section_is_an_error: "[webhok]\ntimeout = \"5s\"\n";
    /// An hour ends before a message about it is read.
    a_forecast_of_an_hour_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nforecast = { windows = [\"day\", \"hour\"] }\n";
    /// 90 percent is meant.
    a_probability_of_90_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nforecast = { windows = [\"day\"], probability = 90 }\n";
    /// The usual is no spike.
    a_spike_of_1_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nspike = 1\n";
    /// A misspelt key of a plan.
    an_unknown_key_of_a_plan_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nthreshold = [80]\n";
    /// A section's key at the top of the file.
    a_key_outside_its_section_is_an_error: "smtp_url = \"smtp://localhost\"\n";
    /// A plan without limits alerts nobody; it was meant otherwise.
    a_plan_without_limits_is_an_error: "[plans.pro]\nthresholds = [80]\n";
    /// Time does not run backwards.
    a_negative_duration_is_an_error: "[retry]\nfirst = \"-5s\"\n";
    /// Five what?
    a_bare_number_is_no_duration: "[webhook]\ntimeout = 5\n";
    /// Nothing reached is not a threshold.
    threshold_0_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [0]\n";
    /// One alert per threshold and day.
    a_doubled_threshold_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [\n  80,\n  80,\n]\n";
    /// Every period would begin with an alert.
    used_0_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [80, \"used:0\"]\n";
    /// A word that is not known would be a threshold that is never reached.
    left_5_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [\"left:5\"]\n";
    /// A doubled threshold in units is a mistake like a doubled percentage.
    a_doubled_threshold_in_units_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [\"used:5\", \"used:5\"]\n";
    /// Beyond the largest count no alert would be due.
    remaining_beyond_every_count_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [\"remaining:9007199254740992\"]\n";
    /// More than ten times the limit.
    threshold_1001_is_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [80, 1001]\n";
    /// What one event raises is committed at once, and holds the server meanwhile.
    more_thresholds_than_one_event_may_raise_are_an_error: "[plans.free]\nlimits = { requests = 5000 }\nthresholds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101]\n";
    /// A digit too many; the parser reports a wrong address.
    a_prefix_that_is_too_long_is_an_error: "[webhook]\nallowed_networks = [\n  \"10.0.0.0/40\",\n  \"fd00::/129\",\n  \"10.0.0.1\",\n]\n";
    /// The channel is what is wrong, and its keys are right for it.
    a_channel_that_is_none_comes_before_its_keys: "[fallback]\ncontacts = [{ channel = \"sms\", number = \"1\" }]\n";
    /// Each percentage of nothing is nothing.
    limit_0_is_an_error: "[plans.free.limits]\nrequests = 0\n";
    /// Above 2^53 - 1, Redis' Lua loses a unit.
    limit_2_to_the_53_is_an_error: "[plans.free.limits]\nrequests = 9007199254740992\n";
    /// A number that not even TOML holds.
    a_limit_of_thirty_digits_is_an_error: "[plans.free.limits]\nrequests = 900719925474099200000000000000\n";
    /// A negative limit.
    a_negative_limit_is_an_error: "[plans.free.limits]\nrequests = -1\n";
    /// Nobody could say which of the two holds.
    two_limits_of_the_same_window_are_an_error: "[plans.pro]\nlimits = { requests = [\n  \"600/hour\",\n  5000,\n  \"7/day\",\n] }\n";
    /// A window that is none would make a limit that never ends.
    an_unknown_window_is_an_error: "[plans.pro.limits]\nrequests = [\n  \"5000/day\",\n  \"600/hours\",\n]\n";
    /// The form of a rate: its window is a duration, that of a limit is a name.
    a_rate_for_a_limit_is_an_error: "[plans.pro.limits]\nrequests = \"600/1h\"\n";
    /// Half a unit.
    a_limit_with_bad_units_is_an_error: "[plans.pro.limits]\nrequests = [\"1.5/hour\"]\n";
    /// It alerts nobody, and was meant otherwise.
    an_empty_list_of_limits_is_an_error: "[plans.pro.limits]\nrequests = []\n";
    /// A list in a list.
    a_list_in_a_list_of_limits_is_an_error: "[plans.pro.limits]\nrequests = [[\"600/hour\"]]\n";
    /// A metric that no event can name.
    a_limit_of_an_illegal_metric_is_an_error: "[plans.free.limits]\n\"Re quests\" = 1\n";
    /// Every subject that names no plan would have none.
    a_default_plan_that_does_not_exist_is_an_error: "default_plan = \"gold\"\n";
    /// A list where a number stands.
    a_wrong_type_is_an_error: "[delivery]\nconcurrency = [64]\n";
    /// Yes is not a boolean.
    a_word_for_a_boolean_is_an_error: "[webhook]\nallow_http = \"yes\"\n";
    /// A section that is none.
    a_value_for_a_section_is_an_error: "redis = \"redis://:secret@127.0.0.1\"\n";
    /// A date, which no setting takes.
    a_date_is_an_error: "[http]\nlisten = 2026-11-21\n";
    /// The line is named, its text is not shown: it may hold half a password.
    broken_syntax_names_the_line: "[redis]\nurl = \"embedded\"\n\n[email]\nsmtp_url = \"smtps://user:topsecret@host\nfrom = \"a@b.test\"\n";
    /// The same key twice.
    a_doubled_key_names_the_line: "[redis]\nurl = \"embedded\"\nurl = \"embedded\"\n";
    /// A contact that no attempt can reach.
    a_contact_without_scheme_is_an_error: "[fallback]\ncontacts = [\n  { channel = \"email\", address = \"a@b.test\" },\n  { channel = \"webhook\", url = \"example.com/hook\", secret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\" },\n]\n";
    /// A secret that can't sign. It is not shown.
    a_secret_that_is_not_base64_is_an_error: "[[fallback.contacts]]\nchannel = \"webhook\"\nurl = \"https://example.com/hook\"\nsecret = \"whsec_not base64!\"\n";
    /// A secret that signs, but weakly.
    a_secret_that_is_too_short_is_an_error: "[[fallback.contacts]]\nchannel = \"webhook\"\nurl = \"https://example.com/hook\"\nsecret = \"whsec_AAAA\"\n";
    /// A webhook that nothing signs.
    a_contact_without_secret_is_an_error: "[[fallback.contacts]]\nchannel = \"webhook\"\nurl = \"https://example.com/hook\"\n";
    /// A misspelt key of a contact would be left out without a word.
    an_unknown_key_of_a_fallback_contact_is_an_error: "[[fallback.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\nmetric = [\"tokens\"]\n";
    /// A contact of the operator that names no plan hears of all of them.
    an_unknown_key_of_an_operator_contact_is_an_error: "[[operator.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\n\n[[operator.contacts]]\nchannel = \"email\"\naddress = \"b@b.test\"\nplan = [\"free\"]\n";
    /// Only a contact of the operator has plans.
    plans_of_a_fallback_contact_are_an_error: "[fallback]\ncontacts = [\n  { channel = \"email\", address = \"a@b.test\", plans = [\"free\"] },\n]\n";
    /// Both are told at once.
    two_unknown_keys_of_contacts_are_both_told: "[fallback]\ncontacts = [{ chanel = \"email\", address = \"a@b.test\" }]\n\n[[operator.contacts]]\nchannel = \"email\"\nadress = \"b@b.test\"\n";
    /// Half past eight in the evening has another form.
    a_digest_at_no_time_of_day_is_an_error: "[operator]\ndigest = \"8:30 pm\"\n";
    /// A day has no such hour.
    a_digest_after_midnight_is_an_error: "[operator]\ndigest = \"24:00\"\n";
    /// The digest of another zone comes at another hour.
    a_digest_in_an_unknown_zone_is_an_error: "[operator]\ndigest = \"08:00\"\ntimezone = \"Asia/Hanoi\"\n";
    /// Pigeons are not supported.
    an_unknown_channel_is_an_error: "[[fallback.contacts]]\nchannel = \"pigeon\"\naddress = \"a@b.test\"\n";
    /// An address that is none.
    an_address_without_domain_is_an_error: "[[fallback.contacts]]\nchannel = \"email\"\naddress = \"alice\"\n";
    /// An address that nobody can write a mail to.
    an_address_that_no_mail_can_be_written_to_is_an_error: "[[fallback.contacts]]\nchannel = \"email\"\naddress = \"alice@[192.0.2.1]\"\n";
    /// Two deliveries of one alert to the same contact.
    a_doubled_contact_is_an_error: "[fallback]\ncontacts = [{ channel = \"email\", address = \"a@b.test\" }, { channel = \"email\", address = \"a@b.test\" }]\n";
    /// A locale of POSIX would be told to nobody.
    a_locale_with_an_underscore_is_an_error: "[email]\nfrom = \"a@b.test\"\nlocale = \"vi_VN\"\n";
    /// The first delay beyond the longest.
    a_first_delay_above_the_longest_is_an_error: "[retry]\nfirst = \"1h\"\nmax_interval = \"30m\"\n";
    /// Retries without a pause.
    a_first_delay_of_0_is_an_error: "[retry]\nfirst = \"0s\"\n";
    /// Delays that shrink hammer the receiver.
    a_factor_below_1_is_an_error: "[retry]\nfactor = 0.5\n";
    /// A number that is none.
    a_factor_that_is_no_number_is_an_error: "[retry]\nfactor = nan\n";
    /// Given up before it began.
    giving_up_after_0_is_an_error: "[retry]\ngive_up_after = \"0s\"\n";
    /// More than counters live.
    late_max_above_a_week_is_an_error: "[stream]\nlate_max = \"8d\"\n";
    /// The tag of every key is the stream's name in braces.
    a_brace_in_the_stream_is_an_error: "[stream]\nkey = \"{usage}\"\n";
    /// It is the tag in every key.
    a_long_stream_key_is_an_error: "[stream]\nkey = \"sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss\"\n";
    /// Each daemon asks each of them all the time.
    more_partitions_than_there_may_be_are_an_error: "[stream]\npartitions = 257\n";
    /// A batch of nothing.
    a_batch_of_0_is_an_error: "[stream]\nbatch_entries = 0\n";
    /// A script of 100 ms.
    a_batch_of_a_million_is_an_error: "[stream]\nbatch_entries = 1000000\n";
    /// No id would be found again.
    event_ids_that_are_not_remembered_are_an_error: "[stream]\nevent_ids_max = 0\n";
    /// A machine's memory holds the ids of a day at most.
    event_ids_of_a_week_are_an_error: "[stream]\nevent_ids_window = \"7d\"\n";
    /// No event would count.
    a_rule_without_metrics_is_an_error: "[events.types.\"Acme.Tokens\"]\nmetrics = {}\n";
    /// A rule that names nothing.
    a_rule_that_reads_no_data_is_an_error: "[events.types.\"Acme.Tokens\"]\nmetrics = { tokens = \"tokens\" }\n";
    /// An event without a type is none of theirs.
    a_rule_for_no_type_is_an_error: "[events.types.\"\"]\nmetrics = { requests = 1 }\n";
    /// A metric that no event may have.
    a_rule_for_an_illegal_metric_is_an_error: "[events.types.\"Acme.Tokens\"]\nmetrics = { Tokens = 1 }\n";
    /// More members than a sorted set may have: another limiter is named.
    a_sliding_window_that_is_too_large_is_an_error: "[plans.free]\nlimits = { requests = 1 }\n\n[plans.free.rate]\nalgorithm = \"sliding\"\nrequests = \"100001/1m\"\n";
    /// A share below the limit would refuse what the limit allows.
    a_share_below_the_limit_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrefuse_at = 90\n";
    /// A secret at a wrong key would be in the log.
    a_share_that_is_a_secret_is_not_repeated: "[plans.free]\nlimits = { requests = 1 }\nrefuse_at = \"redis://:topsecret@h\"\n";
    /// A count has no more digits than that.
    a_scale_of_more_digits_than_a_count_is_an_error: "[metrics.cost]\nunit = \"USD\"\nscale = 16\n";
    /// A scale is no number of units.
    a_scale_below_zero_is_an_error: "[metrics.cost]\nscale = -6\n";
    /// A line break would end the subject line of an email.
    a_name_of_two_lines_is_an_error: "[metrics.cost]\nname = \"API\\nspend\"\n";
    /// An amount with a sentence behind it is no amount.
    a_long_unit_is_an_error: "[metrics.cost]\nunit = \"United States dollars\"\n";
    /// The reason and the hint would name two lengths.
    an_empty_unit_is_an_error: "[metrics.cost]\nunit = \"\"\n";
    /// No event may have it.
    a_format_of_an_illegal_metric_is_an_error: "[metrics.Cost]\nunit = \"USD\"\n";
    /// A misspelt key would leave amounts without their unit.
    an_unknown_key_of_a_metric_is_an_error: "[metrics.cost]\nunits = \"USD\"\n";
    /// A customer's click would run a script.
    a_link_that_runs_a_script_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nupgrade_url = \"javascript:alert(1)\"\n";
    /// A customer would follow a link to a host of another customer's choice.
    a_link_to_a_host_that_a_subject_names_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nusage_url = \"https://{{ subject }}/usage\"\n";
    /// The link would hold the braces.
    a_link_with_an_unknown_variable_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nusage_url = \"https://example.com/{{ plan }}\"\n";
    /// Nothing would ever be sent.
    a_quiet_time_of_a_whole_day_is_an_error: "[[operator.contacts]]\nchannel = \"email\"\naddress = \"ops@b.test\"\nquiet = \"08:00-08:00\"\n";
    /// A time that no clock shows.
    a_quiet_time_until_24_00_is_an_error: "[fallback]\ncontacts = [{ channel = \"email\", address = \"ops@b.test\", quiet = \"22:00-24:00\" }]\n";
    /// An alert of last month is no news.
    a_digest_of_a_month_is_an_error: "[fallback]\ncontacts = [{ channel = \"email\", address = \"ops@b.test\", digest = \"30d\" }]\n";
    /// A contact that is meant to hear of days only would hear of nothing.
    an_unknown_window_of_a_contact_is_an_error: "[fallback]\ncontacts = [{ channel = \"email\", address = \"ops@b.test\", windows = [\"days\"] }]\n";
    /// All windows or none: a guess would cost an alert.
    an_empty_list_of_windows_is_an_error: "[fallback]\ncontacts = [{ channel = \"email\", address = \"ops@b.test\", windows = [] }]\n";
    /// Levels beyond the fourth have no events.
    plans_of_more_levels_than_there_are_are_an_error: "[plans.org]\nlimits = { requests = 1 }\n\n[subjects]\nseparator = \"/\"\ndefault_plans = [\"org\", \"org\", \"org\", \"org\", \"org\"]\n";
    /// Nobody would have the plan of the second level.
    plans_of_levels_without_a_separator_are_an_error: "[plans.org]\nlimits = { requests = 1 }\n\n[subjects]\ndefault_plans = [\"org\"]\n";
    /// A level without limits, although one was meant.
    an_unknown_plan_of_a_level_is_an_error: "[plans.org]\nlimits = { requests = 1 }\n\n[subjects]\nseparator = \"/\"\ndefault_plans = [\n  \"org\",\n  \"team\",\n]\n";
    /// Parts are divided by one character.
    a_separator_of_two_characters_is_an_error: "[subjects]\nseparator = \"::\"\n";
    /// A letter would divide names at surprising places.
    a_letter_is_no_separator: "[subjects]\nseparator = \"x\"\n";
    /// A number without a window.
    a_rate_without_a_window_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = { requests = 60 }\n";
    /// A window that nobody waits for.
    a_rate_with_a_window_of_a_year_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = { requests = \"60/365d\" }\n";
    /// A limiter that does not exist.
    an_unknown_algorithm_is_an_error: "[plans.free]\nlimits = { requests = 1 }\n\n[plans.free.rate]\nalgorithm = \"leaky\"\n";
    /// A metric that no event can name.
    a_rate_of_an_illegal_metric_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = { Requests = \"60/1m\" }\n";
    /// A rate that lets nothing through is none.
    a_rate_of_0_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = { requests = \"0/1m\" }\n";
    /// Above 2^53 - 1, Redis' Lua loses a unit.
    a_rate_of_2_to_the_53_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = { requests = \"9007199254740992/1s\" }\n";
    /// Every other word is a metric, so it can't be told that there is no such key.
    a_misspelt_algorithm_is_an_error: "[plans.free]\nlimits = { requests = 1 }\n\n[plans.free.rate]\nalgoritm = \"gcra\"\nrequests = \"60/1m\"\n";
    /// A section that looks as if it limited something.
    a_rate_of_no_metric_is_an_error: "[plans.free]\nlimits = { requests = 1 }\n\n[plans.free.rate]\nalgorithm = \"gcra\"\n";
    /// As above.
    an_empty_rate_is_an_error: "[plans.free]\nlimits = { requests = 1 }\nrate = {}\n";
    /// Maybe.
    an_unknown_answer_on_error_is_an_error: "[check]\non_error = \"retry\"\n";
    /// No time to ask.
    a_check_without_time_is_an_error: "[check]\ntimeout = \"0s\"\n";
    /// More time than any API has.
    a_check_of_a_minute_is_an_error: "[check]\ntimeout = \"1m\"\n";
    /// The header of the token: a secret would be the subject.
    a_subject_in_the_header_of_the_token_is_an_error: "[check]\nsubject_header = \"authorization\"\n";
    /// Every request has one, so the gateway's own name would be the subject.
    a_subject_in_the_header_of_the_host_is_an_error: "[check]\nsubject_header = \"Host\"\n";
    /// Proxies on the way drop it.
    a_subject_in_a_header_of_one_hop_is_an_error: "[check]\nsubject_header = \"keep-alive\"\n";
    /// One header can't name the subject and its units.
    a_subject_in_the_header_of_its_units_is_an_error: "[check]\nsubject_header = \"X-Quota-Units\"\n";
    /// Two words.
    a_subject_in_no_header_is_an_error: "[check]\nsubject_header = \"X Quota\"\n";
    /// A token that no header carries. It is not shown.
    a_token_of_two_words_is_an_error: "[http]\ntoken = \"topsecret token\"\n";
    /// A secret that was mounted empty would let everybody in.
    an_empty_token_is_an_error: "[http]\ntoken = \"\"\n";
    /// A secret that was not mounted.
    a_file_of_the_token_that_is_missing_is_an_error: "[http]\ntoken_file = \"absent\"\n";
    /// Which of the two was meant?
    a_token_beside_its_file_is_an_error: "[http]\ntoken = \"topsecret\"\ntoken_file = \"/run/secrets/http_token\"\n";
    /// Somebody else's trimming policy.
    an_unknown_word_is_an_error: "[stream]\ntrim = \"always\"\n";
    /// Deliveries that never start.
    a_concurrency_of_0_is_an_error: "[delivery]\nconcurrency = 0\n";
    /// A word where a rate stands.
    a_cap_that_is_no_rate_is_an_error: "[webhook]\nper_destination = \"lots\"\n";
    /// A cap of nothing would hold everything back for ever.
    a_cap_of_0_is_an_error: "[webhook]\nper_destination = \"0/1m\"\n";
    /// A cap without time.
    a_cap_without_a_window_is_an_error: "[webhook]\nper_destination = 30\n";
    /// A window beyond a month.
    a_cap_of_a_year_is_an_error: "[webhook]\nper_destination = \"30/365d\"\n";
    /// A member of a sorted set for each attempt: too many.
    a_cap_above_100000_is_an_error: "[webhook]\nper_destination = \"200000/1m\"\n";
    /// As above, of mails.
    a_cap_of_0_mails_is_an_error: "[email]\nper_minute = 0\n";
    /// Less than nothing.
    a_negative_cap_is_an_error: "[email]\nper_minute = -1\n";
    /// A window where there is none to choose.
    a_cap_of_mails_with_a_window_is_an_error: "[email]\nper_minute = \"60/1m\"\n";
    /// A name must be looked up, and may change.
    a_host_name_to_listen_on_is_an_error: "[http]\nlisten = \"localhost:9464\"\n";
    /// A port that is none.
    a_port_above_65535_is_an_error: "[redis]\nembedded_port = 65536\n";
    /// A cluster.
    a_list_of_urls_is_not_supported_yet: "[redis]\nurl = [\"redis://a\", \"redis://b\"]\n";
    /// Somebody else's data base. The password is not shown.
    a_url_of_another_scheme_is_an_error: "[redis]\nurl = \"postgres://u:topsecret@host\"\n";
    /// Which of the two was meant?
    a_url_beside_its_file_is_an_error: "[redis]\nurl = \"redis://:topsecret@h\"\nurl_file = \"/run/secrets/redis_url\"\n";
    /// As above.
    a_mail_server_beside_its_file_is_an_error: "[email]\nsmtp_url_file = \"/run/secrets/smtp_url\"\nsmtp_url = \"smtp://localhost\"\n";
    /// A typing error in the URL. The password is not shown, here and below.
    a_mail_server_that_is_no_url_is_an_error: "[email]\nfrom = \"a@b.test\"\nsmtp_url = \"smtps:/u:topsecret@:465\"\n";
    /// A greeting is a setting of its own; a path would be taken for one and ignored.
    a_mail_server_with_a_path_is_an_error: "[email]\nfrom = \"a@b.test\"\nsmtp_url = \"smtp://mail.example.com/quota.example.com\"\n";
    /// What is no name would end the command and begin another.
    a_helo_name_that_is_none_is_an_error: "[email]\nfrom = \"a@b.test\"\nhelo_name = \"quota example\\r\\nQUIT\"\n";
    /// The first answer is forgotten before the second could come.
    a_month_until_an_unknown_mailbox_is_believed_is_an_error: "[email]\nfrom = \"a@b.test\"\nunknown_mailbox_after = \"30d\"\n";
    /// A password that anybody on the way could read.
    a_mail_server_with_a_password_in_plain_text_is_an_error: "[email]\nsmtp_url = \"smtp://u:topsecret@mail.example.com\"\n";
    /// A secret that was not mounted.
    a_file_of_the_mail_server_that_is_missing_is_an_error: "[email]\nsmtp_url_file = \"absent\"\n";
    /// A folder that is somewhere else.
    a_folder_of_templates_that_is_missing_is_an_error: "[email]\ntemplates = \"absent\"\n";
    /// Authorities that are somewhere else.
    authorities_for_webhooks_that_are_missing_are_an_error: "[webhook]\ntimeout = \"15s\"\nca_file = \"absent.pem\"\n";
    /// The file is there, but holds no certificate.
    authorities_that_are_none_are_an_error: "[email]\nca_file = \"quotabell.toml\"\n";
    /// A port that is none.
    a_url_with_a_port_above_65535_is_an_error: "[redis]\nurl = \"redis://:topsecret@h:99999\"\n";
    /// The Sentinels watch several primaries: which one?
    a_sentinel_url_without_a_service_is_an_error: "[redis]\nurl = \"redis+sentinel://u:topsecret@s1,s2:26380\"\n";
    /// A cluster has one database.
    a_cluster_url_with_a_database_is_an_error: "[redis]\nurl = \"redis+cluster://:topsecret@a:7000,b:7001/2\"\n";
    /// Half a list would hide that a node is missing.
    a_list_of_hosts_with_a_hole_is_an_error: "[redis]\nurl = \"redis+cluster://:topsecret@a:7000,,b:7001\"\n";
    /// A port that is none, in a list.
    a_list_of_hosts_with_a_bad_port_is_an_error: "[redis]\nurl = \"rediss+sentinel://:topsecret@a:0/mymaster\"\n";
    /// Several hosts without the word that says what they are.
    several_hosts_without_sentinel_or_cluster_are_an_error: "[redis]\nurl = \"redis://:topsecret@a,b/0\"\n";
    /// A secret that was not mounted.
    a_file_of_redis_that_is_missing_is_an_error: "[redis]\nurl_file = \"absent\"\n";
    /// A file that holds something else: itself, here.
    a_file_of_redis_without_a_url_is_an_error: "[redis] # topsecret\nurl_file = \"quotabell.toml\"\n";
    /// Authorities that are somewhere else.
    authorities_for_redis_that_are_missing_are_an_error: "[redis]\nurl = \"rediss://h\"\nca_file = \"absent.pem\"\n";
    /// Authorities that nobody is asked about.
    authorities_for_redis_without_tls_are_an_error: "[redis]\nurl = \"redis://h\"\nca_file = \"absent.pem\"\n";
    /// A From header that no server takes.
    a_sender_that_is_no_mailbox_is_an_error: "[email]\nfrom = \"alerts\"\n";
    /// Links in mails to a place that nobody reaches.
    a_public_url_without_a_host_is_an_error: "[http]\npublic_url = \"quota.example.com\"\n";
    /// What is appended to it would be a part of the query.
    a_public_url_with_a_query_is_an_error: "[http]\npublic_url = \"https://quota.example.com/alerts?to=\"\n";
    /// What is appended to it would never reach the server.
    a_public_url_with_a_fragment_is_an_error: "[http]\npublic_url = \"https://quota.example.com/#\"\n";
    /// A password that is mailed to everybody.
    a_public_url_with_a_user_is_an_error: "[http]\npublic_url = \"https://u:topsecret@quota.example.com\"\n";
    /// A scheme that no browser opens.
    a_public_url_of_another_scheme_is_an_error: "[http]\npublic_url = \"quota://quota.example.com\"\n";
    /// More than a set holds.
    requests_for_a_verification_beyond_count_are_an_error: "[verification]\nrequests = \"100001/1h\"\n";
    /// A number without a period.
    requests_for_a_verification_without_a_period_are_an_error: "[verification]\nrequests = 3\n";
    /// No mail arrives in a second.
    a_password_that_lives_a_second_is_an_error: "[verification]\nlifetime = \"1s\"\n";
    /// A plan that is not there.
    an_operator_contact_with_an_unknown_plan_is_an_error: "[[operator.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\nplans = [\"fre\"]\n";
    /// An empty list may mean all or none.
    an_operator_contact_that_hears_nothing_is_an_error: "[[operator.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\nthresholds = []\n";
    /// Nobody could ever enable it.
    a_fallback_contact_that_is_disabled_is_an_error: "[[fallback.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\ndisabled = { reason = \"gone\", detail = \"\", at = \"2026-11-21T08:37:00Z\" }\n";
    /// Nobody could ever confirm it.
    a_fallback_contact_that_is_not_verified_is_an_error: "[[fallback.contacts]]\nchannel = \"email\"\naddress = \"a@b.test\"\nverified = false\n";
    /// A level that is none.
    an_unknown_log_level_is_an_error: "[log]\nlevel = \"verbose\"\n";
    /// TOML takes the dot for a table, which nobody guesses from a table that was not expected.
    a_metric_with_a_dot_outside_quotes_is_an_error: "[plans.free.limits]\nrequests = 1\ntokens.in = 5\n";
    /// Told one at a time, ten mistakes would take ten starts. What follows from another is not told.
    all_mistakes_are_told_at_once: "default_plan = \"gold\"\n[webhok]\ntimeout = \"5s\"\n[retry]\nfirst = \"5\"\nmax_interval = \"1s\"\nfactor = 0.5\n[plans.free]\nlimits = { requests = -1, tokens = 0 }\nthresholds = [80, 0, 1001, 100]\n[email]\nca_file = \"absent.pem\"\n[http]\ntoken = \"a b\"\n";
    /// What stands behind an error of syntax may belong elsewhere: only the syntax is told, all of it.
    all_errors_of_syntax_are_told_at_once: "[redis]\nurl = \"embedded\nembedded_port = 6399\n[log]\nlevel = verbose\nformat = \"text\"\n";
}

/// The same for variables of the environment.
macro_rules! wrong_variables {
    ($(#[doc = $why:literal] $case:ident: $name:expr, $value:expr;)*) => {
        /// As above, where there is no line to point at.
        #[test]
        fn wrong_variables_are_explained() {
            let cases = [$((stringify!($case), $why, $name, $value)),*];
            let told = |(case, why, name, value)| (format!("{case}:{why}\n{name}={value}\n--"), told_to_variable(name, value));
            insta::assert_snapshot!(cases.map(told).into_iter().collect::<Table>());
        }
    };
}

wrong_variables! {
    /// A misspelt variable would leave the default in force without a word.
    a_variable_with_an_unknown_key_is_an_error: "QUOTABELL__REDIS__ULR", "redis://127.0.0.1";
    /// A misspelt section.
    a_variable_with_an_unknown_section_is_an_error: "QUOTABELL__STREAMS__KEY", "usage";
    /// A value of the wrong type.
    a_variable_with_a_bad_number_is_an_error: "QUOTABELL__DELIVERY__CONCURRENCY", "many";
    /// A duration without a unit, which is what most people write first.
    a_variable_with_a_bare_duration_is_an_error: "QUOTABELL__WEBHOOK__TIMEOUT", "15";
    /// A word for a boolean.
    a_variable_with_a_bad_boolean_is_an_error: "QUOTABELL__WEBHOOK__ALLOW_HTTP", "1";
    /// A relation that the variable breaks: it is the place, not the default.
    a_variable_that_breaks_a_relation_is_the_place: "QUOTABELL__RETRY__MAX_INTERVAL", "1s";
    /// A list that is not JSON.
    a_variable_that_is_not_json_is_an_error: "QUOTABELL__PLANS__FREE__THRESHOLDS", "80,100";
    /// Nothing is limited by nothing.
    a_variable_with_an_empty_rate_is_an_error: "QUOTABELL__PLANS__FREE__RATE", "{}";
    /// JSON of the wrong shape.
    a_variable_with_the_wrong_json_is_an_error: "QUOTABELL__PLANS__FREE__LIMITS", "[5000]";
    /// A list that is not JSON, where text is allowed too.
    a_variable_with_a_broken_list_of_limits_is_an_error: "QUOTABELL__PLANS__FREE__LIMITS__REQUESTS", "[600/hour, 5000/day]";
    /// A window that is none.
    a_variable_with_an_unknown_window_is_an_error: "QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["600/hour","5000/daily"]}"#;
    /// A key below a value that is no table.
    a_variable_below_a_value_is_an_error: "QUOTABELL__REDIS__URL__HOST", "x";
    /// A port that is none.
    a_variable_with_a_bad_url_is_an_error: "QUOTABELL__REDIS__URL", "redis://:topsecret@h:99999";
    /// A file that was not mounted.
    a_variable_with_a_file_that_is_missing_is_an_error: "QUOTABELL__EMAIL__SMTP_URL_FILE", "/absent";
    /// A variable that sets nothing would leave the default in force without a word.
    a_variable_with_one_underscore_is_an_error: "QUOTABELL_EMAIL__FROM", "a@b.test";
    /// Likewise, with the other one missing.
    a_variable_without_its_second_separator_is_an_error: "QUOTABELL__EMAIL_FROM", "a@b.test";
    /// A metric with a dot has no variable of its own.
    a_variable_of_a_metric_with_a_dot_is_an_error: "QUOTABELL__PLANS__FREE__LIMITS__TOKENS.IN", "5";
    /// A slash that a shell has doubled.
    a_variable_with_two_separators_is_an_error: "QUOTABELL__SUBJECTS__SEPARATOR", "//";
    /// Names with commas, which is what most people write first.
    a_variable_with_a_list_of_plans_is_json: "QUOTABELL__SUBJECTS__DEFAULT_PLANS", "org,team";
    /// A cluster.
    a_variable_with_a_list_of_urls_is_not_supported_yet: "QUOTABELL__REDIS__URL", "[\"redis://a\"]";
}

/// A mistake in a template has two places: its own, and the setting that names the folder.
#[test]
fn a_broken_template_is_an_error_with_both_places() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("the folder is writable");
    write("alert.txt", "{{ subject }}\n{{ useed }}\n");
    write("quotabell.toml", "[email]\ntemplates = \".\"\n");
    for command in [&["check-config", "--offline"][..], &["preview", "text"], &["send-test", "--email", "a@b.test"]] {
        let run = quotabell(command.iter().copied()).env("QUOTABELL_CONFIG", "quotabell.toml").within(folder.path());
        insta::assert_snapshot!("a_broken_template", run.run().told());
    }
}

/// Two variables that contradict each other: neither is later.
#[test]
fn a_variable_beside_that_of_its_file_is_an_error() {
    let run = quotabell(["check-config", "--offline"]).env("QUOTABELL__REDIS__URL_FILE", "/run/secrets/redis_url");
    let told = run.redis("redis://:topsecret@h").run().told();
    insta::assert_snapshot!(told, @"
    error: redis.url (variable QUOTABELL__REDIS__URL) and redis.url_file (variable QUOTABELL__REDIS__URL_FILE) are both set in the same layer: set only one
    hint: set one of redis.url and redis.url_file; a variable wins over the file, whichever of the two it sets
    exit 78
    ");
}

/// The default of `retry.first` stays; the file breaks the relation, and the place must be the file's.
#[test]
fn a_relation_that_a_default_fulfilled_is_told_at_the_key_that_names_it() {
    let told = told("[retry]\nmax_interval = \"1s\"\n");
    assert!(told.contains("retry.max_interval") && told.contains("quotabell.toml, line 2"), "{told}");
}

/// A file that is not there.
#[test]
fn a_missing_file_is_an_error() {
    let told = quotabell(["check-config", "--offline", "--config", "absent.toml"]).run().told();
    insta::assert_snapshot!(told, @"
    error: cannot read the configuration absent.toml: No such file or directory (os error 2)
    hint: name a readable file with --config FILE or QUOTABELL_CONFIG; without either, /etc/quotabell/quotabell.toml is read where it exists
    exit 78
    ");
}

/// A file that can't be read as one: a folder. (Permissions stop nobody who runs the tests as root.)
#[test]
fn an_unreadable_file_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("quotabell.toml")).expect("the folder is writable");
    let told = quotabell(["check-config", "--config", "quotabell.toml"]).within(folder.path()).run().told();
    insta::assert_snapshot!(told, @"
    error: cannot read the configuration quotabell.toml: Is a directory (os error 21)
    hint: name a readable file with --config FILE or QUOTABELL_CONFIG; without either, /etc/quotabell/quotabell.toml is read where it exists
    exit 78
    ");
}

/// Bytes that are no text.
#[test]
fn a_file_that_is_not_utf8_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("quotabell.toml"), b"[redis]\nurl = \"\xff\"\n").expect("the folder is writable");
    let told = quotabell(["check-config", "--config", "quotabell.toml"]).within(folder.path()).run().told();
    insta::assert_snapshot!(told, @"
    error: cannot read the configuration quotabell.toml: stream did not contain valid UTF-8
    hint: name a readable file with --config FILE or QUOTABELL_CONFIG; without either, /etc/quotabell/quotabell.toml is read where it exists
    exit 78
    ");
}

/// A variable whose bytes are no text.
#[test]
fn a_variable_that_is_not_utf8_is_an_error() {
    use std::os::unix::ffi::OsStrExt as _;
    let value = std::ffi::OsStr::from_bytes(b"\xff");
    let told = quotabell(["check-config", "--offline"]).env("QUOTABELL__DEFAULT_PLAN", value).run().told();
    insta::assert_snapshot!(told, @"
    error: variable QUOTABELL__DEFAULT_PLAN: the value is not UTF-8
    hint: write the value as UTF-8 text
    exit 78
    ");
}

/// The address in use would hide a mistake that the next start shows, and exit 1 makes a supervisor try again for ever.
#[test]
fn every_setting_is_judged_before_the_daemon_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("an address").to_string();
    for (name, value) in [
        ("QUOTABELL__REDIS__URL", "redis://:topsecret@h:99999"),
        ("QUOTABELL__REDIS__URL_FILE", "/absent"),
        ("QUOTABELL__EMAIL__SMTP_URL_FILE", "/absent"),
        ("QUOTABELL__EMAIL__TEMPLATES", "/absent"),
        ("QUOTABELL__WEBHOOK__CA_FILE", "/absent"),
        ("QUOTABELL__HTTP__TOKEN_FILE", "/absent"),
    ] {
        let run = quotabell(["run"]).env("QUOTABELL__HTTP__LISTEN", &listen).env(name, value).run();
        assert_eq!(run.code, 78, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("(variable {name})")), "{}", run.stderr);
    }
    let run = quotabell(["run"]).env("QUOTABELL__HTTP__LISTEN", &listen).run();
    assert!(run.code == 1 && run.stderr.contains("Address already in use"), "{}", run.stderr);
}

const CONTRADICTION: &str = "plans.pro.limits.requests: 600/hour is above 500/day: the limit of the day is reached first (quotabell.toml, line 3)";

/// Limits that contradict each other still count: the operator hears of them where the configuration is judged, and at
/// start.
#[test]
fn limits_that_contradict_each_other_are_warned_of() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text =
        "[plans.pro.limits]\ntokens = [\"600/hour\", \"600/day\"]\nrequests = [\"600/hour\", 500, \"9000/month\"]\n";
    fs::write(folder.path().join("quotabell.toml"), text).expect("the folder is writable");
    let named = |command: &[&str]| quotabell(command.iter().copied()).env("QUOTABELL_CONFIG", "quotabell.toml");
    let checked = named(&["check-config", "--offline"]).within(folder.path()).run();
    assert_eq!((checked.code, checked.stderr.matches("reached first").count()), (0, 1), "{}", checked.stderr);
    assert!(checked.stderr.contains(&format!("warning: {CONTRADICTION}\n")), "{}", checked.stderr);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("an address").to_string();
    let started = named(&["run"]).within(folder.path()).env("QUOTABELL__HTTP__LISTEN", &listen).run();
    assert!(started.stderr.contains(CONTRADICTION), "{}", started.stderr);
}

/// What one event raises is committed at once: a plan with a thousand thresholds would hold the server for seconds.
#[test]
fn a_plan_has_a_hundred_thresholds_at_most() {
    let plan = |thresholds: u16| {
        let listed: Vec<String> = (1..=thresholds).map(|percent| percent.to_string()).collect();
        told(&format!("[plans.free]\nlimits = {{ requests = 5 }}\nthresholds = [{}]\n", listed.join(", ")))
    };
    assert!(plan(100).contains("exit 0"), "{}", plan(100));
    let refused = plan(101);
    let why = "plans.free.thresholds: 101 thresholds are too many, at most 100 are allowed (quotabell.toml, line 3)";
    assert!(refused.contains("exit 78") && refused.contains(why), "{refused}");
}

/// No error may show a password, whatever is wrong around it.
#[test]
fn no_error_shows_a_password() {
    for text in [
        "[redis]\nurl = \"postgres://u:topsecret@host\"\n",
        "[redis]\nurl = \"topsecret\n",
        "[http]\ntoken = \"topsecret topsecret\"\n",
        "[http]\ntoken = [\"topsecret\"]\n",
        "[http]\ntoken = 31415926535897932\n",
        "[http.token]\ntopsecret = \"topsecret\"\n",
        "[[fallback.contacts]]\nchannel = \"webhook\"\nurl = \"https://x.test\"\nsecret = \"topsecret\"\n",
    ] {
        let told = told(text);
        assert!(told.contains("exit 78") && !told.contains("topsecret") && !told.contains("31415"), "{told}");
    }
}
