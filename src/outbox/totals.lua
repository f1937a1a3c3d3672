#!lua flags=no-writes
-- totals: totals and remaining work at one moment.
--
-- A script instead of MULTI, because Redis refuses everything inside a MULTI when memory is full, and the totals are
-- needed then.
--
-- KEYS[1] totals hash   KEYS[2] pending zset   KEYS[3] waiting zset   KEYS[4] dead zset   KEYS[5] outbox stream
-- KEYS[6] destinations zset   KEYS[7] unhealthy destinations zset   KEYS[8] open circuits zset
-- KEYS[9] the pause of all sending
--
-- Returns {now ms, pending, waiting, dead kept, outbox entries, creation of the oldest pending delivery in ms (nil:
--          none is pending), {field, value, ...} of the totals hash, destinations with pending deliveries that are
--          healthy, that are not, and whose circuit is open, 1 while sending is paused}
--         an error   a key of another type
--
-- Writes nothing.

local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
return {
  whole(now_ms()),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
  redis.call('XLEN', KEYS[5]),
  oldest and whole(tonumber(oldest)) or false,
  redis.call('HGETALL', KEYS[1]),
  redis.call('ZCARD', KEYS[6]),
  redis.call('ZCARD', KEYS[7]) - redis.call('ZCARD', KEYS[8]),
  redis.call('ZCARD', KEYS[8]),
  redis.call('EXISTS', KEYS[9]),
}
