#!lua flags=allow-oom
-- claim: let the one message of a request leave; or take the request back, since its message has certainly not arrived.
--
-- KEYS[1] message of the request, string          ARGV[1] 'claim' | 'give_back'
-- KEYS[2] message that the contact got, string    ARGV[2] the message, unique to it
-- KEYS[3] turn that adds share, string            ARGV[3] claim: how long the request counts, ms, 1..     give_back: the request
-- KEYS[4] requests for the address, zset          ARGV[4] claim: how long the next message waits, ms, 1..
-- KEYS[5] requests under the name, zset                   give_back: the request that takes its turn
--
-- Returns 'claimed'      the message may leave; no other does for this request
--         'left'         another message has the request: nothing written
--         'cooling'      the contact got another message just now: nothing written, the request stays good for one
--         'given_back'   the request counts no more, and the contact got nothing
--         'not_ours'     give_back: another message has the request, or it has run out: nothing written
--         an error       a key of another type: nothing written, unless it is a set of requests
--
-- What was given back is never claimed again, so a message that still waits for that request does not leave uncounted: whoever adds
-- again in the same minute has a request of their own. The minute goes on, so that nobody learns of the failure by it.
-- Runs when memory is full too: what can't be written then is the password, and the request is given back for it.
-- Safe to run twice. A message that was claimed is claimed again; a request that was given back is gone from the sets.

local sent = redis.call('GET', KEYS[1])

if ARGV[1] == 'give_back' then
  if sent ~= ARGV[2] then return 'not_ours' end
  redis.call('ZREM', KEYS[4], ARGV[3])
  redis.call('ZREM', KEYS[5], ARGV[3])
  if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('UNLINK', KEYS[2]) end
  if redis.call('GET', KEYS[3]) == ARGV[3] then redis.call('SET', KEYS[3], ARGV[4], 'KEEPTTL') end
  return 'given_back'
end

if sent == ARGV[2] then return 'claimed' end
if sent then return 'left' end
if redis.call('GET', KEYS[2]) then return 'cooling' end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[4])
return 'claimed'
