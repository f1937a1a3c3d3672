"""Three completions of LiteLLM for `acme/alice`, whose answers need no model: `litellm_calls.py FOLDER` of the callback.

Prints the tokens that LiteLLM tells its callers, as JSON.
"""

import asyncio
import json
import sys

import litellm

sys.path.insert(0, sys.argv[1])
from litellm_usage import handler  # noqa: E402

litellm.callbacks = [handler]


async def main():
    question = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello there"}]}
    told = {"tokens.in": 0, "tokens.out": 0}
    for number in range(3):
        options = {"mock_response": f"It is fine day {number}", "user": "acme/alice", "stream": number == 2}
        answer = await litellm.acompletion(**question, **options)
        if number == 2:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=question["messages"])
        told["tokens.in"] += answer.usage.prompt_tokens
        told["tokens.out"] += answer.usage.completion_tokens
    # One nobody pays for.
    await litellm.acompletion(**question, mock_response="It is")
    print(json.dumps(told), flush=True)
    # LiteLLM calls back in tasks of its own; the test closes this when it has seen their events.
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
