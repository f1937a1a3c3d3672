#!lua
-- issue: store the expected answers to a message: a code, and the token of a confirm link if there is one.
--
-- KEYS[1] zset of the items sent to contacts of the subject   KEYS[2] code   KEYS[3] token; absent without a link
--
-- ARGV[1] member of the contact   ARGV[2] lifetime of code and token, ms, 1..   ARGV[3] the stored form of the code
-- ARGV[4] member of the token   ARGV[5] the request that the token answers, JSON; both absent without a link
--
-- Returns 'issued'   both are stored; the code replaces that of an earlier message
--         'erased'   the subject was erased since the contact was asked: nothing written
--         an error   a key of another type, or a command that the user may not run: nothing written. Refused whole when
--                    memory is full
--
-- Safe to run twice: the second call stores the same again.
-- The zset expires with the member of the contact, which lives longer than any code or token.

local refusal = wrong_type(1, 'zset') or denied(KEYS[1], 'ZADD', 'ZREMRANGEBYSCORE')
for at = 2, #KEYS do refusal = refusal or denied(KEYS[at], 'SET') end
if refusal then return refusal end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'erased' end
local now = now_ms()
if KEYS[3] then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
  redis.call('ZADD', KEYS[1], whole(now + ARGV[2]), ARGV[4])
  redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[2])
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 'issued'
