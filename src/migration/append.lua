#!lua
-- append: append entries of another deployment's stream; a repeated call appends nothing twice.
--
-- KEYS[1] stream   KEYS[2] checkpoint hash, which remembers how far a stream was copied
--
-- ARGV[1]  the checkpoint's field for the stream that is copied
-- ARGV[2 ..] for each entry: its id there, number of values, 2..4000, then fields and values as XADD takes them; in the
-- order of their ids
--
-- Returns how many were appended: an entry that is not behind the remembered one was appended before
--         an error   a key of another type, an entry of more values than a script can append, or a command that the
--                    user may not run: nothing written
--
-- Safe to run twice.

for at, kind in ipairs({'stream', 'hash'}) do
  local error = wrong_type(at, kind)
  if error then return error end
end
local refusal = denied(KEYS[1], 'XADD') or denied(KEYS[2], 'HSET')
local at = 2
while at < #ARGV do
  local values = tonumber(ARGV[at + 1])
  refusal = refusal or too_many_values(values)
  at = at + 2 + values
end
if refusal then return refusal end

local copied = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0'
local appended, last = 0, copied
at = 2
while at < #ARGV do
  local id, values = ARGV[at], tonumber(ARGV[at + 1])
  if is_before(last, id) then
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 2, at + 1 + math.min(values, SLICE)))
    appended, last = appended + 1, id
  end
  at = at + 2 + values
end
if last ~= copied then redis.call('HSET', KEYS[2], ARGV[1], last) end
return appended
