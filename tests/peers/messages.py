"""Reads what a receiver got, one JSON object a line, and has it judged by the libraries of others. Says what each thinks, one line each."""

import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook as StandardWebhook
from svix.webhooks import Webhook as SvixWebhook


def svix_names(headers):
    """Svix signs alike, under the names that it had before the standard."""
    return {name.replace("webhook-", "svix-"): value for name, value in headers.items()}


def signed(message):
    body, headers = message["body"], message["headers"]
    StandardWebhook(message["secret"]).verify(body, headers)
    SvixWebhook(message["secret"]).verify(body, svix_names(headers))
    for library, given in ((StandardWebhook, headers), (SvixWebhook, svix_names(headers))):
        try:
            library(message["secret"]).verify(body + " ", given)
        except Exception:
            continue
        raise ValueError(f"{library} takes another body")


def cloudevent(message):
    signed(message)
    event = from_http_event(HTTPMessage(headers=message["headers"], body=message["body"].encode()))
    shown = {
        "id": event.get_id(),
        "source": event.get_source(),
        "type": event.get_type(),
        "specversion": event.get_specversion(),
        "subject": event.get_subject(),
        "data": event.get_data(),
    }
    return json.dumps(shown, sort_keys=True)


JUDGES = {"signed": signed, "cloudevent": cloudevent}

for line in sys.stdin:
    message = json.loads(line)
    try:
        print("ok", JUDGES[message["kind"]](message) or "", flush=True)
    except Exception as error:  # the test shows it
        print("refused", repr(error), flush=True)
