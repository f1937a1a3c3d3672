"""Calls a limiter of the package `limits` as the bench does ours, and prints what it saw as one line of JSON.

Its asynchronous side, with redis-py and hiredis: as many calls at once as the bench asks for, each on a connection of its own.
"""

import asyncio
import json
import sys
import time

from limits import RateLimitItemPerHour
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

STRATEGIES = {"fixed": FixedWindowRateLimiter, "moving": MovingWindowRateLimiter}


async def main() -> None:
    load = json.loads(sys.argv[1])
    at_once = load["at_once"]
    storage = RedisStorage(
        f"async+redis://127.0.0.1:{load['port']}", implementation="redispy", max_connections=at_once
    )
    limiter = STRATEGIES[load["strategy"]](storage)
    item = RateLimitItemPerHour(load["limit"])
    numbers = iter(range(load["calls"]))
    took_us: list[float] = []
    admitted = 0

    async def caller() -> None:
        nonlocal admitted
        for number in numbers:
            began = time.perf_counter()
            if await limiter.hit(item, load["prefix"], str(number % load["keys"])):
                admitted += 1
            took_us.append((time.perf_counter() - began) * 1e6)

    await asyncio.gather(*(limiter.test(item, load["prefix"], "warm") for _ in range(at_once)))
    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "admitted": admitted, "took_us": took_us}))


asyncio.run(main())
