#!lua flags=no-writes
-- seen: which events were counted before, as of a checkpoint.
--
-- KEYS[1] checkpoint hash          KEYS[2 ..] sets of event ids
-- ARGV: for each set the number of members (1..), then the members
--
-- Returns {checkpoint, flags ...}  for each set a string of one digit a member: 1 is in the set, 0 is not
--         an error                 a key of another type
--
-- One script, so that checkpoint and answers belong together: where a commit then finds that checkpoint unchanged, nothing was
-- counted in between. Writes nothing.

local reply = {redis.call('HGET', KEYS[1], 'id') or '0-0'}
local at = 1
for k = 2, #KEYS do
  local n = tonumber(ARGV[at])
  local flags = {}
  for from = at + 1, at + n, 4000 do
    local found = redis.call('SMISMEMBER', KEYS[k], unpack(ARGV, from, math.min(from + 3999, at + n)))
    flags[#flags + 1] = table.concat(found)
  end
  reply[k] = table.concat(flags)
  at = at + 1 + n
end
return reply
