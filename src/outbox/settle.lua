#!lua flags=allow-oom
-- settle: end one lease of a delivery: with its end, with the time of its next attempt, or by giving it back.
--
-- KEYS[1] due zset   KEYS[2] pending zset   KEYS[3] waiting zset   KEYS[4] dead zset   KEYS[5] deliveries zset   KEYS[6] totals hash
-- KEYS[7] the delivery's hash
--
-- ARGV[1] delivery id   ARGV[2] lease token
-- ARGV[3] 'delivered' | 'dead' | 'muted' | 'expired' | 'cancelled': how it ended
--         'retry': the next attempt is due after ARGV[4]      'released': no attempt took place, due again after ARGV[4]
-- ARGV[4] wait, ms, 0 and up
-- ARGV[5] the attempt as JSON without its opening brace and time, '' when none took place: then the lease's count is taken back
-- ARGV[6] what went wrong, '' for nothing
-- ARGV[7] TTL of an ended delivery, s   ARGV[8] attempts kept, 1..1000   ARGV[9] most ids to trim of each list, 0..1000
-- ARGV[10] prefix of a delivery's key
--
-- Returns {'settled', now ms}    it stands
--         {'repeated', now ms}   an earlier call with this token stands, whose answer was lost: nothing written
--         {'stale', now ms}      another worker has leased the delivery since, or it was ended or replayed: nothing written
--         an error               a key of another type, a total that is no number or a command that the user may not run: nothing
--                                written
--
-- A lease that ran out is still ours until somebody else takes it, so an outcome that comes late is recorded and not lost.
-- Runs when memory is full too: it ends deliveries, which frees memory. Trims ids whose hash has expired on the way.
-- Safe to run twice: the second call finds its token settled.

-- JUDGE

local now = now_ms()
local outcome = ARGV[3]
local again = outcome == 'retry' or outcome == 'released'
for i = 1, 7 do
  local failed = wrong_type(i, i >= 6 and 'hash' or 'zset')
  if failed then return failed end
end
if not again then
  local failed = wrong_total(KEYS[6], outcome)
  if failed then return failed end
end

local refusal = denied(KEYS[6], 'HINCRBY') or denied(KEYS[7], 'HSET', 'HDEL', 'EXPIRE')
for i = 1, 5 do refusal = refusal or denied(KEYS[i], 'ZADD', 'ZREM') end
if refusal then return refusal end

local held = redis.call('HMGET', KEYS[7], 'state', 'lease_token', 'settled_token', 'attempts', 'replayed_after', 'channel', 'subject')
if held[3] == ARGV[2] then return {'repeated', whole(now)} end
if held[1] ~= 'pending' or held[2] ~= ARGV[2] then return {'stale', whole(now)} end
local attempts, before = tonumber(held[4] or '0') or 0, tonumber(held[5] or '0') or 0

-- WRITE

-- The newest attempts stay readable. Numbers may be missing (a worker died), so the oldest are found by looking.
local function record(json)
  redis.call('HSET', KEYS[7], 'attempt:' .. whole(attempts), '{"at_ms":' .. whole(now) .. ',' .. json)
  local kept = tonumber(ARGV[8])
  if attempts <= kept then return end
  local numbers = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[7])) do
    local n = string.match(field, '^attempt:(%d+)$')
    if n then numbers[#numbers + 1] = tonumber(n) end
  end
  table.sort(numbers)
  for i = 1, #numbers - kept do redis.call('HDEL', KEYS[7], 'attempt:' .. whole(numbers[i])) end
end

if ARGV[5] ~= '' then
  record(ARGV[5])
elseif held[6] ~= 'none' and attempts > 0 then
  redis.call('HSET', KEYS[7], 'attempts', whole(attempts - 1))
  if attempts - 1 <= before then redis.call('HDEL', KEYS[7], 'first_attempt_at_ms') end
end
redis.call('HSET', KEYS[7], 'settled_token', ARGV[2])
redis.call('HDEL', KEYS[7], 'lease_token')
if ARGV[6] ~= '' then redis.call('HSET', KEYS[7], 'last_error', ARGV[6]) end

if again then
  redis.call('ZADD', KEYS[1], whole(now + tonumber(ARGV[4])), ARGV[1])
else
  redis.call('HSET', KEYS[7], 'state', outcome, 'ended_at_ms', whole(now))
  redis.call('EXPIRE', KEYS[7], ARGV[7])
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  if held[6] == 'none' then redis.call('ZREM', KEYS[3], (held[7] or '') .. '\0' .. ARGV[1]) end
  if outcome == 'dead' then redis.call('ZADD', KEYS[4], whole(now), ARGV[1]) end
  redis.call('HINCRBY', KEYS[6], outcome, 1)
end

-- Ids older than the TTL whose hash is gone leave the lists. The old ones that stay (pending for weeks) must not hide those behind
-- them, so a call looks at a stretch that depends on the time.
local most = tonumber(ARGV[9])
for i = 4, 5 do
  local old = redis.call('ZCOUNT', KEYS[i], '-inf', whole(now - 1000 * tonumber(ARGV[7])))
  if old > 0 and most > 0 then
    local from = old > most and now % (old - most + 1) or 0
    for _, id in ipairs(redis.call('ZRANGE', KEYS[i], whole(from), whole(math.min(from + most, old) - 1))) do
      -- Where the slot moves it may be at another node: then the id stays.
      if redis.pcall('EXISTS', ARGV[10] .. id) == 0 then redis.call('ZREM', KEYS[i], id) end
    end
  end
end
return {'settled', whole(now)}
