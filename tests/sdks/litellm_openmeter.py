"""Asks LiteLLM for answers with its callback for OpenMeter: litellm_openmeter.py SUBJECT

The answers come from LiteLLM itself.
"""

import asyncio
import sys

import litellm

subject = sys.argv[1]
litellm.callbacks = ["openmeter"]


async def main():
    prompt_tokens = completion_tokens = 0
    for _ in range(3):
        answer = await litellm.acompletion(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hello there"}], user=subject,
            mock_response="It is a fine day",
        )
        prompt_tokens += answer.usage.prompt_tokens
        completion_tokens += answer.usage.completion_tokens
    # It tells no tokens of images.
    await litellm.aimage_generation(model="openai/dall-e-3", prompt="a bell", user=subject, mock_response="https://a.test/1.png")
    # LiteLLM calls its callbacks in the background, and waits for them nowhere.
    running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.wait(running, timeout=5)
    print(f"requests=4 tokens.in={prompt_tokens} tokens.out={completion_tokens}")


asyncio.run(main())
