#!lua
-- prelude: functions that several scripts share. The loader inserts it into a script as one line, so that the script's
-- line numbers stay the same.
--
-- The prelude has no KEYS[1] and no ARGV: wrong_type gets a position and reads the KEYS of the script. Returns nothing:
-- the script continues behind it. Each comment needs its own line.

-- A number as text: Lua's own conversion uses 1e+15 for large numbers.
local function whole(n) return string.format('%.0f', n) end

-- Lua passes at most 7,999 values to a function, and a script that fails there keeps its earlier writes. So `unpack`
-- gets at most this number of values. Even, so that no slice separates a field from its value.
local SLICE = 4000

-- Runs a command on a key with the values of a list from one position to another, in slices. Only for commands that
-- accept their values in several calls. Returns the sum of the replies.
local function call_in_slices(command, key, values, from, to)
  local sum = 0
  for first = from, to, SLICE do
    sum = sum + redis.call(command, key, unpack(values, first, math.min(first + SLICE - 1, to)))
  end
  return sum
end

-- An error reply if an entry has more values than one XADD in a script accepts, else nil. XADD can't be split, so a
-- script checks this before its first write.
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

-- An error reply for a key that holds something else.
local function wrong(key, what) return redis.error_reply('WRONGTYPE ' .. key .. ' holds ' .. what) end

-- Whether the server refused access to the key: the key's slot is moving to another node, or the user has no right.
local function was_refused(reply)
  return type(reply) == 'table' and reply.err and not string.find(reply.err, '^WRONGTYPE')
end

-- An error reply if KEYS[at] exists with another type, else nil.
local function wrong_type(at, wanted)
  local kind = redis.call('TYPE', KEYS[at]).ok
  if kind ~= 'none' and kind ~= wanted then return wrong(KEYS[at], 'a ' .. kind) end
end

-- An error reply if HINCRBY can't add to the field of the totals (no number, or no room), else nil.
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

-- The reply of XINFO STREAM as a table.
local function stream_info(key) return pairs_of(redis.call('XINFO', 'STREAM', key)) end

-- Whether entry id a is before entry id b. Compares digits, since 2^64 does not fit a Lua number.
local function is_before(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am == bm then am, bm = as, bs end
  if #am ~= #bm then return #am < #bm end
  return am < bm
end

-- Whether the stream under this name is not the one that was read up to the checkpoint. The checkpoint's entry stays
-- until a later entry is committed, and trimming or deleting it also removes earlier entries or leaves a trace. So if
-- it is missing although other entries exist, these entries were never read.
local function made_again(key, checkpoint)
  if checkpoint == '0-0' or #redis.call('XRANGE', key, checkpoint, checkpoint) > 0 then return false end
  local info = stream_info(key)
  return is_before(info['last-generated-id'], checkpoint)
    or #redis.call('XRANGE', key, '-', '(' .. checkpoint, 'COUNT', 1) > 0 and is_before(info['max-deleted-entry-id'], checkpoint)
end

-- An error reply if the user may not run one of the commands on a key, else nil. A right may be withdrawn at any time,
-- and a script that fails midway is not rolled back: each script with several writes checks all rights before its first
-- write.
local function denied(key, ...)
  for _, command in ipairs({...}) do
    if not redis.acl_check_cmd(command, key) then
      return redis.error_reply('NOPERM this user may not run ' .. command .. ' on ' .. key)
    end
  end
end

-- An error reply if nobody may work on a partition, according to these fields of its checkpoint: the partition was
-- moved to another deployment, or its migration to this one is incomplete; else nil. A daemon that was paused or cut
-- off does not know about a migration, so every script that counts an event or starts a delivery checks this.
local function moved_away(moved_to, migration)
  if moved_to then return redis.error_reply('MOVEDAWAY everything was moved to ' .. moved_to) end
  if migration and string.find(migration, '^copying ') then
    return redis.error_reply('MOVEDAWAY the migration to here is not complete')
  end
end

-- The same for the key of the checkpoint.
local function moved_away_from(checkpoint)
  local fields = redis.call('HMGET', checkpoint, 'moved_to', 'migration')
  return moved_away(fields[1], fields[2])
end
