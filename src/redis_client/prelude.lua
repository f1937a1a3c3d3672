#!lua
-- prelude: what several scripts need. The loader puts it before a script, on one line, so that the script's lines keep
-- their numbers.
--
-- Takes no KEYS[1] and no ARGV of its own: wrong_type looks at those of the script. Returns nothing: the script goes on
-- behind it. Each comment has a line of its own.

-- A number as text: Lua's own conversion writes 1e+15 from there on.
local function whole(n) return string.format('%.0f', n) end

-- Lua hands at most 7,999 values to a function, and a script that fails there keeps what it has written. So `unpack`
-- takes no more than this from a list. An even number: no slice parts a field from its value.
local SLICE = 4000

-- Runs a command on a key with the values of a list from one position to another, in slices. For commands whose values
-- may come in several calls. Returns the sum of the replies.
local function call_in_slices(command, key, values, from, to)
  local sum = 0
  for first = from, to, SLICE do
    sum = sum + redis.call(command, key, unpack(values, first, math.min(first + SLICE - 1, to)))
  end
  return sum
end

-- The error reply where an entry has more values than one XADD of a script takes, else nil. XADD can't be split, so a
-- script asks before its first write.
local function too_many_values(count)
  if count > SLICE then
    return redis.error_reply('ERR a script appends at most ' .. SLICE .. ' values in an entry, this one has ' .. whole(count))
  end
end

-- The server's clock, ms.
local function now_ms()
  local clock = redis.call('TIME')
  return tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
end

-- The error reply for a key that holds something else.
local function wrong(key, what) return redis.error_reply('WRONGTYPE ' .. key .. ' holds ' .. what) end

-- Whether the server did not even look at the key: it is at another node of the cluster, to which its slot moves, or
-- the user may not.
local function was_refused(reply)
  return type(reply) == 'table' and reply.err and not string.find(reply.err, '^WRONGTYPE')
end

-- The error reply where KEYS[at] is there and of another type, else nil.
local function wrong_type(at, wanted)
  local kind = redis.call('TYPE', KEYS[at]).ok
  if kind ~= 'none' and kind ~= wanted then return wrong(KEYS[at], 'a ' .. kind) end
end

-- The error reply where a field of the totals is no number as HINCRBY takes it, with room to add; else nil.
local function wrong_total(key, field)
  local total = redis.call('HGET', key, field)
  if total and not (total == '0' or #total <= 15 and string.match(total, '^%-?[1-9]%d*$')) then
    return wrong(key, 'no count in field ' .. field)
  end
end

-- A flat list of names and values as a table.
local function pairs_of(list)
  local of = {}
  for at = 1, #list, 2 do of[list[at]] = list[at + 1] end
  return of
end

-- What XINFO STREAM tells.
local function stream_info(key) return pairs_of(redis.call('XINFO', 'STREAM', key)) end

-- Is entry id a before entry id b? As digits of any length, since 2^64 does not fit a Lua number.
local function is_before(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am == bm then am, bm = as, bs end
  if #am ~= #bm then return #am < #bm end
  return am < bm
end

-- Whether the stream under this name is not the one that was read up to the checkpoint. The checkpoint's entry stays
-- until something behind it is committed, and what trims or deletes it takes those before it too, or leaves a trace. So
-- where it has gone from behind others, these were never read.
local function made_again(key, checkpoint)
  if checkpoint == '0-0' or #redis.call('XRANGE', key, checkpoint, checkpoint) > 0 then return false end
  local info = stream_info(key)
  return is_before(info['last-generated-id'], checkpoint)
    or #redis.call('XRANGE', key, '-', '(' .. checkpoint, 'COUNT', 1) > 0 and is_before(info['max-deleted-entry-id'], checkpoint)
end

-- The error reply where the user may not run one of the commands on a key, else nil. A right may be withdrawn at any
-- time, and a script that fails midway is not rolled back: each that writes more than once asks for all of it before it
-- writes.
local function denied(key, ...)
  for _, command in ipairs({...}) do
    if not redis.acl_check_cmd(command, key) then
      return redis.error_reply('NOPERM this user may not run ' .. command .. ' on ' .. key)
    end
  end
end

-- The error reply where nobody may work on a partition, by these fields of its checkpoint: everything was moved to
-- another deployment, or the migration to here is not complete; else nil. A daemon that was paused or cut off knows
-- nothing of a migration. So each script asks that counts an event or begins what is sent.
local function moved_away(moved_to, migration)
  if moved_to then return redis.error_reply('MOVEDAWAY everything was moved to ' .. moved_to) end
  if migration and string.find(migration, '^copying ') then
    return redis.error_reply('MOVEDAWAY the migration to here is not complete')
  end
end

-- The same by the key of the checkpoint.
local function moved_away_from(checkpoint)
  local fields = redis.call('HMGET', checkpoint, 'moved_to', 'migration')
  return moved_away(fields[1], fields[2])
end
