"""Asks limiters of the package `limits` what tests/peers/main.rs asks ours, one question a line, at the time that the question says.

The package takes the time of the moving window from this process, so this process is told the time; that of the fixed window is the
server's, which stands behind a relay that the test turns.
"""

import json
import sys
import time

from limits import RateLimitItemPerSecond
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

now_us = 0
time.time = lambda: now_us / 1e6

storage = RedisStorage(f"redis://127.0.0.1:{sys.argv[1]}?protocol=2")
limiters = {"fixed": FixedWindowRateLimiter(storage), "moving": MovingWindowRateLimiter(storage)}

for line in sys.stdin:
    question = json.loads(line)
    now_us = question["at_us"]
    item = RateLimitItemPerSecond(question["limit"], question["window_s"])
    admitted = limiters[question["strategy"]].hit(item, question["key"], cost=question["units"])
    print("admitted" if admitted else "rejected", flush=True)
