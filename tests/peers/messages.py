"""Reads what a receiver got, one JSON object a line, and has it judged by the libraries of others. Says what each thinks, one line each."""

import email
import email.policy
import json
import sys

import dkim
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


def signed_mail(message):
    record = f"v=DKIM1; k=rsa; p={message['key']}".encode()
    names = []

    def dns(name, timeout=5):
        names.append(name.decode() if isinstance(name, bytes) else name)
        return record

    mail = message["mail"].encode()
    if not dkim.verify(mail, dnsfunc=dns) or names != [message["name"]]:
        raise ValueError(f"not verified by {names}")
    if dkim.verify(mail.replace(b"Subject: ", b"Subject: x"), dnsfunc=dns) or dkim.verify(mail + b"x", dnsfunc=dns):
        raise ValueError("another mail is verified too")


def parsed_mail(message):
    mail = email.message_from_string(message["mail"], policy=email.policy.default)
    parts = list(mail.walk())
    defects = [repr(defect) for part in parts for defect in part.defects]
    shown = {
        "headers": {name.lower(): str(value) for name, value in mail.items()},
        "text": mail.get_body(["plain"]).get_content(),
        "html": mail.get_body(["html"]).get_content(),
        "defects": defects + [repr(defect) for value in mail.values() for defect in value.defects],
    }
    return json.dumps(shown)


JUDGES = {"signed": signed, "cloudevent": cloudevent, "dkim": signed_mail, "mail": parsed_mail}

for line in sys.stdin:
    message = json.loads(line)
    try:
        print("ok", JUDGES[message["kind"]](message) or "", flush=True)
    except Exception as error:  # the test shows it
        print("refused", repr(error), flush=True)
