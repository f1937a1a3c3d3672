"""Sends usage with the SDK of OpenMeter, given another address: python openmeter_sdk.py URL TOKEN"""

import datetime
import sys

from corehttp.exceptions import HttpResponseError
from openmeter import Client

url, token = sys.argv[1:]
client = Client(endpoint=url, token=token)


def event(number, **data):
    return {
        "id": str(number), "source": "my-app", "specversion": "1.0", "type": "tokens", "subject": "customer-1",
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(), "data": data,
    }


for _ in range(2):  # The second time they are duplicates.
    client.events.ingest_event(event(1, prompt_tokens=100, completion_tokens="20", model="gpt-4"))
    client.events.ingest_events([event(2, prompt_tokens=7, completion_tokens=0), event(3, prompt_tokens=0, completion_tokens=1)])
try:
    client.events.ingest_event(event(4, prompt_tokens=-1, completion_tokens=0))
    raise SystemExit("a negative number was taken")
except HttpResponseError as error:
    print(error.status_code, error.response.json()["detail"])
    assert error.status_code == 400
