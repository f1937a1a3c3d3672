"""LiteLLM appends the tokens of each completion to the stream of usage events. Needs the package `redis`.

Proxy: put this file beside config.yaml, and name it there: `litellm_settings: { callbacks: litellm_usage.handler }`.
SDK: `litellm.callbacks = [litellm_usage.handler]`; asynchronous calls, such as `acompletion`, are counted.
With `stream.partitions` above 1, set QUOTABELL_PARTITIONS to it, and QUOTABELL_SEPARATOR to `subjects.separator`.
"""

import os
import zlib

from litellm.integrations.custom_logger import CustomLogger
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

PARTITIONS = int(os.environ.get("QUOTABELL_PARTITIONS", "1"))
SEPARATOR = os.environ.get("QUOTABELL_SEPARATOR", "")


def stream(subject):
    first = subject.split(SEPARATOR)[0] if SEPARATOR else subject
    return "usage" if PARTITIONS == 1 else f"usage:{zlib.crc32(first.encode()) % PARTITIONS}"


class Quotabell(CustomLogger):
    def __init__(self, url):
        super().__init__()
        # LiteLLM ends a callback after 20 s. Each event has an id, so one that is sent again counts once.
        retry = Retry(ExponentialBackoff(cap=5, base=0.1), retries=10)
        self.redis = Redis.from_url(url, retry=retry, socket_timeout=2, socket_connect_timeout=2)

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        call = kwargs["standard_logging_object"]
        key = call["metadata"]
        # Who pays: the team or the key of the proxy, or else the `user` of the request, which a client may choose.
        user = call.get("end_user") or kwargs.get("user")
        subject = key.get("user_api_key_team_id") or key.get("user_api_key_alias") or user
        if not subject:
            return
        async with self.redis.pipeline(transaction=False) as pipeline:
            for metric, units in [("tokens.in", call["prompt_tokens"]), ("tokens.out", call["completion_tokens"])]:
                if units:
                    event = {"subject": subject, "metric": metric, "units": units, "id": call["id"]}
                    pipeline.xadd(stream(subject), event)
            await pipeline.execute()


handler = Quotabell(os.environ.get("QUOTABELL_REDIS_URL", "redis://127.0.0.1:6379"))
