"""Sends usage with the CloudEvents SDK in its three modes: python cloudevents_modes.py URL TOKEN"""

import datetime
import json
import sys
import urllib.request

from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

url, token = sys.argv[1:]


def event(number, data):
    attributes = {
        "id": str(number), "source": "/sdk", "type": "sdk.calls", "subject": "kunde-é 7",
        "time": datetime.datetime.now(datetime.timezone.utc), "datacontenttype": "application/json",
    }
    return CloudEvent(attributes, data)


def send(headers, body, path="/v1/events"):
    headers = {**headers, "authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=10) as answer:
        return answer.status, json.load(answer)


def expect(name, answer, accepted):
    print(name, *answer)
    assert answer == (202, {"accepted": accepted, "refused": []}), name


for _ in range(2):  # The second time they are duplicates.
    binary = to_binary_event(event(1, {"units": 3}))
    expect("binary", send(binary.headers, binary.body), 1)
    structured = to_structured_event(event(2, {"units": 40}))
    expect("structured", send(structured.headers, structured.body), 1)
    batch = [json.loads(to_structured_event(event(number, {"units": 500})).body) for number in (3, 4)]
    expect("batch", send({"content-type": "application/cloudevents-batch+json"}, json.dumps(batch).encode()), 2)
expect("without data", send(*(lambda message: (message.headers, message.body))(to_structured_event(event(5, None)))), 1)
