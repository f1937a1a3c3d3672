"""Calls a daemon with the client that openapi-python-client generates: `call.py URL TOKEN`.

mypy checks this file against the client, so a type that the document promises and the client lacks fails before the
daemon is called.
"""

import sys
from typing import TypeVar

from quotabell_client import AuthenticatedClient, Client
from quotabell_client.api.checks import check
from quotabell_client.api.contacts import add_contact, list_contacts, mute_contact, remove_contact, replace_contact
from quotabell_client.api.deliveries import list_deliveries, show_delivery
from quotabell_client.api.operations import readyz
from quotabell_client.api.subjects import (
    erase_subject,
    history,
    list_subjects,
    mute_subject,
    replace_subject,
    show_subject,
    top,
    usage,
)
from quotabell_client.models import (
    AddedContact,
    CheckRequest,
    CheckResponse,
    Contact,
    ContactFilter,
    ContactList,
    DeliveryList,
    DeliveryDetail,
    ErasedSubject,
    History,
    MuteRequest,
    NewEmailContact,
    NewWebhookContact,
    Problem,
    Subject,
    SubjectList,
    SubjectSettings,
    Top,
    Usage,
)
from quotabell_client.types import Unset

T = TypeVar("T")


def of(kind: type[T], answer: object) -> T:
    """The answer, which must be of this kind."""
    assert isinstance(answer, kind), f"{answer} is no {kind.__name__}"
    return answer


url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)

assert readyz.sync(client=Client(base_url=url)) == "ready\n"

settings = SubjectSettings.from_dict({"plan": "free", "limits": {"requests": ["50/hour", "100/day"]}, "thresholds": [80]})
subject = of(Subject, replace_subject.sync("alice", client=client, body=settings))
assert subject.limits.to_dict() == {"requests": ["50/hour", "100/day"]}, subject
assert of(Subject, show_subject.sync("alice", client=client)) == subject
assert [one.subject for one in of(SubjectList, list_subjects.sync(client=client)).subjects] == ["alice"]

allowed = of(CheckResponse, check.sync(client=client, body=CheckRequest(subject="alice", units=10, record=True)))
assert allowed.allowed and allowed.recorded is True and isinstance(allowed.judged, Unset), allowed
assert [(limit.window, limit.limit) for limit in allowed.limits] == [("hour", 50), ("day", 100)], allowed
refused = check.sync_detailed(client=client, body=CheckRequest(subject="alice", units=101))
body = refused.parsed
assert refused.status_code == 429 and not isinstance(body, (CheckResponse, Problem, type(None))), refused
assert not body.allowed and body.fits is False, refused

wrong = of(Problem, show_subject.sync("alice", client=AuthenticatedClient(base_url=url, token="wrong")))
assert wrong.status == 401 and wrong.title == "Unauthorized", wrong

webhook = NewWebhookContact(channel="webhook", url="https://hooks.example.com/quota", thresholds=[80, 100])
added = of(AddedContact, add_contact.sync("alice", client=client, body=webhook))
assert added.verified is False and isinstance(added.secret, str), added
email = NewEmailContact(channel="email", address="no address")
assert of(Problem, add_contact.sync("alice", client=client, body=email)).status == 400
narrowed = of(Contact, replace_contact.sync("alice", added.id, client=client, body=ContactFilter(metrics=["requests"])))
assert narrowed.metrics == ["requests"] and isinstance(narrowed.thresholds, Unset), narrowed
assert not isinstance(mute_contact.sync("alice", added.id, client=client, body=MuteRequest(reason="moving")), Problem)
(contact,) = of(ContactList, list_contacts.sync("alice", client=client)).contacts
assert contact.muted and contact.muted_reason == "moving" and contact.secret == "***", contact

deliveries = of(DeliveryList, list_deliveries.sync(client=client, subject="alice")).deliveries
detail = of(DeliveryDetail, show_delivery.sync(deliveries[0].id, client=client))
assert detail.type_ == "verification" and detail.contact_id == added.id and detail.explanation, detail

muted = mute_subject.sync("alice", client=client, body=MuteRequest(for_="2h"), metric="requests")
assert muted is not None and not isinstance(muted, Problem) and muted.mute.until is not None, muted
assert of(Usage, usage.sync("alice", client=client)).plan == "free"
assert of(History, history.sync("alice", client=client)).subject == "alice"
assert of(Top, top.sync(client=client)).metric == "requests"

assert remove_contact.sync_detailed("alice", added.id, client=client).status_code == 204
erased = of(ErasedSubject, erase_subject.sync("alice", client=client))
assert erased.removed.settings > 0, erased
print("Python: every call was answered as the document says")
