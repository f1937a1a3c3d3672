"""A callback for LiteLLM that appends the tokens of each answer to quotabell's stream.

Copy it beside the proxy's config.yaml, and name it there:

    litellm_settings:
      callbacks: litellm_redis.callback

It needs redis-py and the variable QUOTABELL_REDIS_URL. If Redis is away, LiteLLM logs the error, answers its client, and
the usage is lost. Requests of which only the total is known are not counted.
"""

import os

import redis.asyncio as redis
from litellm.integrations.custom_logger import CustomLogger

STREAM = os.environ.get("QUOTABELL_STREAM", "usage")


def subject(payload):
    """Who pays: the team of the key. The end user of a request is what its client says."""
    return payload["metadata"].get("user_api_key_team_id")


class Quotabell(CustomLogger):
    def __init__(self):
        super().__init__()
        self.redis = redis.from_url(os.environ["QUOTABELL_REDIS_URL"])

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        payload = kwargs["standard_logging_object"]
        who = subject(payload)
        if not who:
            return
        usage = {"tokens.in": payload["prompt_tokens"], "tokens.out": payload["completion_tokens"], "requests": 1}
        async with self.redis.pipeline(transaction=False) as pipeline:
            for metric, units in usage.items():
                if units:
                    event = {"subject": who, "metric": metric, "units": units, "id": payload["id"]}
                    pipeline.xadd(STREAM, event)
            await pipeline.execute()


callback = Quotabell()
