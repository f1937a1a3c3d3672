#!/usr/bin/env python3
"""Writes the dashboard for Grafana, quotabell.json beside this file.

    dashboard.py [FILE]

`make grafana` runs it. `make test-grafana` runs every query on a Prometheus that scraped daemons at work.
"""

import json
import re
import sys
from pathlib import Path

# Grafana's grid.
COLUMNS = 24
STAT = {"w": 4, "h": 4}
GRAPH = {"w": 8, "h": 8}
# The labels of a partition. Each environment has partitions of its own.
PARTITION = "namespace, job, partition"


def stat(title, description, expression, unit="short", bad=None):
    """One number. `bad` is the value from which it is red."""
    return {"type": "stat", "title": title, "description": description, "unit": unit, "bad": bad, "size": STAT,
            "queries": [(expression, title)]}


def graph(title, description, unit, *queries):
    """Lines over time: expressions with their legend."""
    return {"type": "timeseries", "title": title, "description": description, "unit": unit, "bad": None, "size": GRAPH,
            "queries": queries}


def total(by, expression):
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def rate(metric, by=""):
    return total(by, f"rate({metric}[$__rate_interval])")


def increase(metric, by=""):
    return total(by, f"increase({metric}[$__rate_interval])")


def quantile(share, metric, by=""):
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}' if by else 'le')})"


def share_of_checks(decisions):
    some = rate(f'quotabell_checks_total{{decision=~"{decisions}"}}')
    return f"{some} / {rate('quotabell_checks_total')}"


def stored(metric, by=""):
    """The sum over the partitions of what every daemon reads from Redis."""
    return total(by, f"max by ({PARTITION}{f', {by}' if by else ''}) ({metric})")


ROWS = {
    "Counting": [
        stat("Daemons ready", "Daemons that can count. 0: nothing is counted or sent.", "sum(quotabell_ready)"),
        stat("Entries waiting", "Stream entries that are not counted yet.", stored("quotabell_lag_entries"),
             bad=100000),
        stat("Partitions stopped", "Partitions that count nothing until somebody fixes what the log names.",
             f"{stored('quotabell_counting_stopped')} or vector(0)", bad=1),
        stat("Partitions read", "Partitions that a daemon reads. All of them, or events wait.",
             "sum(quotabell_reading)"),
        stat("Entries lost", "Entries of the stream that others removed before they were counted, in the time shown.",
             "sum(increase(quotabell_entries_lost_total[$__range]))", bad=1),
        stat("Deployments lost", "Times that Redis was found emptied or exchanged, in the time shown.",
             "sum(increase(quotabell_deployments_lost_total[$__range]))", bad=1),
        graph("Events", "Events a second.", "ops", (rate("quotabell_events_counted_total"), "counted"),
              (rate("quotabell_http_events_accepted_total"), "taken over HTTP"),
              (rate("quotabell_events_duplicate_total"), "repeated ids"),
              (rate("quotabell_events_refused_total"), "refused")),
        graph("Refused events", "By reason: docs/operations.md#refused-events", "ops",
              (rate("quotabell_events_refused_total", "reason"), "{{reason}}")),
        graph("Refused requests", "Requests with events that were refused as a whole, by HTTP status. 503: sent again.",
              "ops", (rate("quotabell_http_events_requests_refused_total", "status"), "{{status}}")),
        graph("Lag", "Entries that wait, by partition.", "short",
              (f"max by ({PARTITION}) (quotabell_lag_entries)", "{{job}} {{partition}}")),
        graph("Commit time", "Round trip of a commit.", "s", (quantile(0.5, "quotabell_commit_seconds"), "p50"),
              (quantile(0.99, "quotabell_commit_seconds"), "p99")),
        graph("Commits", "By the answer of the script.", "ops",
              (rate("quotabell_commits_total", "answer"), "{{answer}}")),
        graph("Readers", "Partitions that each daemon reads.", "short",
              ("sum by (instance) (quotabell_reading)", "{{instance}}")),
        graph("Surprises", "What others changed in Redis, and event ids forgotten early.", "short",
              (increase("quotabell_entries_lost_total"), "entries lost"),
              (increase("quotabell_entries_returned_total"), "entries returned"),
              (increase("quotabell_drift_total"), "counters changed"),
              (increase("quotabell_event_ids_forgotten_total"), "ids forgotten")),
        graph("History", "What is not archived yet. Days above 2 may be lost.", "short",
              ("max(quotabell_history_days_left)", "days"), ("max(quotabell_history_metrics_left)", "metrics")),
        graph("Subjects", "Subjects with cached settings, and settings that can't be read.", "short",
              ("sum by (instance) (quotabell_subjects_cached)", "cached {{instance}}"),
              (increase("quotabell_subjects_unreadable_total"), "unreadable")),
    ],
    "Alerts": [
        stat("Alerts raised", "In the time shown.", "sum(increase(quotabell_alerts_raised_total[$__range]))"),
        stat("Alerts to fan out", "Alerts whose deliveries are not made yet.", stored("quotabell_outbox_entries")),
        stat("Without contact", "Deliveries that wait because their subject has no contact.",
             stored("quotabell_deliveries_without_contact")),
        stat("Plans", "Fingerprints of plans in effect. More than one: daemons have different plans.",
             "count(count by (fingerprint) (quotabell_plans_info == 1))", bad=2),
        graph("Alerts raised", "By threshold and window.", "short",
              (increase("quotabell_alerts_raised_total", "threshold, window"), "{{threshold}} of the {{window}}")),
        graph("Alerts ended", "By reason.", "short",
              (increase("quotabell_alerts_ended_total", "reason"), "{{reason}}")),
        graph("Notices raised", "Forecasts, spikes, silences, expiring grants and ends of alerts.", "short",
              (increase("quotabell_notices_raised_total", "type"), "{{type}}")),
        graph("Hourly pass", "Time since the newest complete one, which updates forecasts.", "s",
              ("time() - min(quotabell_hourly_pass_last_success_timestamp_seconds)", "age")),
        graph("Deliveries made", "By channel. none: no contact is known.", "short",
              (increase("quotabell_deliveries_made_total", "channel"), "{{channel}}")),
        graph("Contacts", "Contacts that were disabled, and configured ones that should be changed.", "short",
              (increase("quotabell_contacts_disabled_total", "reason"), "disabled: {{reason}}"),
              (increase("quotabell_configured_contacts_refused_total", "reason"), "configured: {{reason}}")),
        graph("Verifications", "Of addresses that subjects added.", "short",
              (increase("quotabell_verifications_total", "outcome"), "{{outcome}}")),
    ],
    "Delivery": [
        stat("Pending", "Deliveries that have not ended.", stored("quotabell_deliveries_pending")),
        stat("Oldest pending", "Age of the oldest pending delivery.", "max(quotabell_oldest_pending_seconds)", "s"),
        stat("Dead", "Deliveries that were given up and can be replayed.", stored("quotabell_deliveries_dead"), bad=1),
        stat("Receivers failing", "Receivers of webhooks with an open circuit.", "max(quotabell_receivers_failing)",
             bad=5),
        stat("Servers failing", "Channels whose only server fails, so that all their messages wait.",
             "sum(max by (namespace, job, channel) (quotabell_server_circuit_open))", bad=1),
        stat("Paused", "1: an operator paused the sending.", "max(quotabell_deliveries_paused)", bad=1),
        graph("Attempts", "By channel and outcome.", "ops",
              (rate("quotabell_attempts_total", "channel, outcome"), "{{channel}} {{outcome}}")),
        graph("Ended", "Deliveries that ended, by channel and state.", "short",
              (increase("quotabell_deliveries_ended_total", "channel, state"), "{{channel}} {{state}}")),
        graph("Time to deliver", "From the commit that raised an alert to its delivery.", "s",
              (quantile(0.5, "quotabell_delivered_seconds", "channel"), "{{channel}} p50"),
              (quantile(0.99, "quotabell_delivered_seconds", "channel"), "{{channel}} p99")),
        graph("Destinations", "With pending deliveries. open: the circuit is open.", "short",
              (stored("quotabell_destinations", "state"), "{{state}}")),
        graph("Pending", "By partition.", "short",
              (f"max by ({PARTITION}) (quotabell_deliveries_pending)", "{{job}} {{partition}}")),
        graph("Delayed", "Deliveries put off by a cap, sending that waited for counting, and templates that failed.",
              "ops", (rate("quotabell_deliveries_throttled_total", "channel"), "cap of {{channel}}"),
              (rate("quotabell_deliveries_waited_for_counting_total"), "counting"),
              (rate("quotabell_template_failures_total", "channel"), "template of {{channel}}")),
    ],
    "Checks": [
        graph("Checks", "By decision.", "ops", (rate("quotabell_checks_total", "decision"), "{{decision}}")),
        graph("Check time", "From a whole request to its answer.", "s",
              (quantile(0.5, "quotabell_check_seconds"), "p50"), (quantile(0.99, "quotabell_check_seconds"), "p99")),
        graph("Refused and unjudged", "Share of all checks.", "percentunit",
              (share_of_checks("denied_.*"), "refused"), (share_of_checks("error_.*"), "unjudged")),
        graph("API requests", "With a valid token, by its name.", "ops",
              (rate("quotabell_api_requests_total", "caller, answer"), "{{caller}} {{answer}}")),
    ],
    "Redis and daemons": [
        graph("Failed calls", "Calls to Redis, by operation and class.", "ops",
              (rate("quotabell_redis_errors_total", "operation, class"), "{{operation}} {{class}}")),
        graph("Ready", "By daemon.", "short", ("max by (instance) (quotabell_ready)", "{{instance}}")),
        graph("Trimming", "Consumer groups that keep counted entries in the stream.", "short",
              (stored("quotabell_trim_held_by_group", "group"), "held by {{group}}")),
        graph("Reloads", "Configurations that were read again.", "short",
              (increase("quotabell_reloads_total", "outcome"), "{{outcome}}")),
        graph("Log", "Lines that were dropped, because stderr took no more.", "ops",
              (rate("quotabell_log_lines_dropped_total"), "dropped")),
        graph("Time zones", "Daemons by the zone data in use.", "short",
              ("sum by (source, version) (quotabell_zone_data_info)", "{{source}} {{version}}")),
    ],
}


def selected(expression):
    """Restricts every metric to the chosen environments and daemons."""
    chosen = 'namespace=~"$namespace",job=~"$job",instance=~"$instance"'
    with_labels = re.sub(r"(quotabell_\w+)\{", rf"\1{{{chosen},", expression)
    return re.sub(r"(quotabell_\w+)(?![\w{])", rf"\1{{{chosen}}}", with_labels)


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, position, definition):
    queries = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": selected(expression), "legendFormat": legend,
         "range": True}
        for at, (expression, legend) in enumerate(definition["queries"])
    ]
    steps = [{"color": "green", "value": None}]
    if definition["bad"] is not None:
        steps.append({"color": "red", "value": definition["bad"]})
    defaults = {"unit": definition["unit"], "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    options = {}
    if definition["type"] == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area", "colorMode": "value"}
    else:
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {"id": number, "type": definition["type"], "title": definition["title"],
            "description": definition["description"], "datasource": SOURCE, "gridPos": position, "targets": queries,
            "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def panels():
    made, x, y, height = [], 0, 0, 0
    for row, definitions in ROWS.items():
        y, x, height = y + height, 0, 0
        made.append({"id": len(made) + 1, "type": "row", "title": row, "collapsed": False, "panels": [],
                     "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        y += 1
        for definition in definitions:
            size = definition["size"]
            if x + size["w"] > COLUMNS or height not in (0, size["h"]):
                y, x, height = y + height, 0, 0
            made.append(panel(len(made) + 1, {"x": x, "y": y, **size}, definition))
            x, height = x + size["w"], size["h"]
    return made


def variable(name, label, query, every=".+"):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
            "query": {"query": query, "refId": "A"}, "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
            "allValue": every, "current": {"text": "All", "value": "$__all"}}


def dashboard():
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}},
        # Only Kubernetes has namespaces.
        variable("namespace", "Namespace", "label_values(quotabell_ready, namespace)", every=".*"),
        variable("job", "Job", 'label_values(quotabell_ready{namespace=~"$namespace"}, job)'),
        variable("instance", "Daemon", 'label_values(quotabell_ready{namespace=~"$namespace",job=~"$job"}, instance)'),
    ]
    return {"uid": "quotabell", "title": "quotabell", "tags": ["quotabell"], "schemaVersion": 39, "version": 1,
            "editable": True, "timezone": "browser", "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels()}


def text():
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("quotabell.json")).write_text(text())
